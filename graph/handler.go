// Package graph serves the API of schema.graphqls over HTTP: queries and
// mutations by POST, all three kinds of operations over a WebSocket with the
// subprotocol graphql-transport-ws.
//
// Resolvers are thin: they convert, call the engine, and return. Every error
// leaves through one presenter, every string through one marshaller, and every
// request has passed one gate that checks Host and Origin.
package graph

import (
	"net/http"
	"time"

	"github.com/99designs/gqlgen/graphql/handler"
	"github.com/99designs/gqlgen/graphql/handler/extension"
	"github.com/99designs/gqlgen/graphql/handler/lru"
	"github.com/99designs/gqlgen/graphql/handler/transport"
	"github.com/coder/websocket"
	"github.com/rs/cors"
	"github.com/vektah/gqlparser/v2/ast"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/graph/generated"
	"github.com/rockpool/rockpool/runtime/engine"
)

// Options are what a handler needs beside the engine.
type Options struct {
	Version        string
	AllowedHosts   []string // names in the Host header that are answered, without port
	AllowedOrigins []string // origins beside the server's own, for example "https://admin.example.org"
	MaxBody        int64    // bytes of a POST's body and of a WebSocket's message; 0: DefaultMaxBody
	Logger         *zap.Logger
}

// DefaultMaxBody fits the files of an exercise many times over.
const DefaultMaxBody = 32 << 20

// Bounds of one operation.
const (
	maxTokens     = 20_000 // of a document, before it is parsed
	maxComplexity = 50_000 // see complexity
	cachedQueries = 1_000
)

const subprotocol = "graphql-transport-ws"

// Handler serves the API at /graphql, and at / a page that says so. Cancelling
// a request's base context ends its subscriptions.
func Handler(eng *engine.Engine, options Options) http.Handler {
	if options.MaxBody == 0 {
		options.MaxBody = DefaultMaxBody
	}
	presenter := presenter{logger: options.Logger}
	schema := generated.NewExecutableSchema(generated.Config{
		Resolvers:  &resolver{engine: eng, version: options.Version, present: presenter.Present},
		Complexity: complexity(),
	})
	server := handler.New(schema)
	server.AddTransport(webSocket(options.MaxBody))
	server.AddTransport(transport.POST{})
	server.SetQueryCache(lru.New[*ast.QueryDocument](cachedQueries))
	server.SetParserTokenLimit(maxTokens)
	server.SetErrorPresenter(presenter.Present)
	server.SetRecoverFunc(presenter.Recover)
	server.Use(extension.Introspection{})
	server.Use(extension.FixedComplexityLimit(maxComplexity))
	server.AroundOperations(presenter.refuseSubscriptionsByPost)

	mux := http.NewServeMux()
	mux.Handle("POST /graphql", jsonOnly(limitBody(options.MaxBody, server)))
	mux.Handle("GET /graphql", webSocketOnly(server))
	mux.HandleFunc("GET /{$}", welcome)
	crossOrigin := cors.New(cors.Options{
		AllowOriginFunc: func(origin string) bool { return allowedOrigin(options.AllowedOrigins, origin) },
		AllowedMethods:  []string{http.MethodGet, http.MethodPost},
		AllowedHeaders:  []string{"Content-Type", "Authorization"},
		MaxAge:          600,
	})
	return checkHost(options.AllowedHosts, checkOrigin(options.AllowedOrigins, crossOrigin.Handler(mux)))
}

func webSocket(readLimit int64) transport.Websocket {
	return transport.Websocket{
		Implementation: transport.CoderWebsocketImplementation{AcceptOptions: websocket.AcceptOptions{
			// checkOrigin has refused foreign origins before this is reached.
			InsecureSkipVerify: true,
			CompressionMode:    websocket.CompressionDisabled,
		}},
		InitTimeout:      10 * time.Second,
		PingPongInterval: 20 * time.Second,
		// A slow reader answers a ping only when it has read all that was sent
		// before; who has really left is found by the listener's deadline.
		MissingPongOk:    true,
		PayloadReadLimit: &readLimit,
	}
}
