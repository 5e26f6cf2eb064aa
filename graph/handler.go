// Package graph serves the API of schema.graphqls over HTTP: queries and
// mutations by POST, queries by GET, and all three kinds of operations as
// server-sent events and over WebSockets; see package transport.
//
// Resolvers are thin: they convert, call the engine, and return. Every error
// leaves through one presenter, every string through one marshaller, and every
// request has passed one gate that checks Host and Origin.
package graph

import (
	"net/http"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/executor"
	"github.com/99designs/gqlgen/graphql/handler/extension"
	"github.com/rs/cors"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/graph/generated"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/engine"
)

// Options are what a handler needs beside the engine.
type Options struct {
	Version         string
	AllowedHosts    []string // names in the Host header that are answered, without port
	AllowedOrigins  []string // origins beside the server's own, for example "https://admin.example.org"
	NoIntrospection bool     // the schema isn't shown, nor names suggested
	Logger          *zap.Logger

	Settings // the bounds; the rest is filled in
}

// Settings are those of the transports.
type Settings = transport.Settings

// ConnContext is for http.Server: with it a peer that vanished is found sooner.
var ConnContext = transport.ConnContext

// maxComplexity bounds one operation; see complexity.
const maxComplexity = 50_000

// Handler serves the API at /graphql, and at / a page that says so. Cancelling
// a request's base context ends its subscriptions.
func Handler(eng *engine.Engine, options Options) http.Handler {
	presenter := presenter{logger: options.Logger, hints: !options.NoIntrospection}
	resolver := &resolver{engine: eng, version: options.Version}
	settings := options.Settings
	settings.Source, settings.Present, settings.Recover = resolver.follow, presenter.Present, presenter.Recover
	settings = settings.WithDefaults()

	documents := newDocumentCache()
	exec := executor.New(generated.NewExecutableSchema(generated.Config{Resolvers: resolver, Complexity: complexity()}))
	exec.SetQueryCache(documents)
	exec.SetParserTokenLimit(maxTokens)
	exec.SetErrorPresenter(presenter.Present)
	exec.SetRecoverFunc(presenter.Recover)
	exec.SetDisableSuggestion(options.NoIntrospection)
	exec.Use(documentLimits{documents})
	exec.Use(extension.FixedComplexityLimit(maxComplexity))
	if !options.NoIntrospection {
		exec.Use(extension.Introspection{})
	}

	mux := http.NewServeMux()
	mux.Handle("/graphql", api{exec: exec, presenter: presenter, transports: []graphql.Transport{
		transport.WebSocket{Settings: settings}, transport.SSE{Settings: settings},
		transport.POST{Settings: settings}, transport.GET{Settings: settings},
	}})
	mux.HandleFunc("GET /{$}", welcome)
	crossOrigin := cors.New(cors.Options{
		AllowOriginFunc: func(origin string) bool { return allowedOrigin(options.AllowedOrigins, origin) },
		AllowedMethods:  []string{http.MethodGet, http.MethodPost},
		AllowedHeaders:  []string{"Content-Type", "Authorization", "Last-Event-ID"},
		MaxAge:          600,
	})
	return checkHost(options.AllowedHosts, checkOrigin(options.AllowedOrigins, crossOrigin.Handler(mux)))
}

// api hands a request to the transport that it is for.
type api struct {
	exec       *executor.Executor
	presenter  presenter
	transports []graphql.Transport
}

// ServeHTTP implements http.Handler.
func (a api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if panicked := recover(); panicked != nil {
			failure := a.presenter.Present(r.Context(), a.presenter.Recover(r.Context(), panicked))
			refuseWith(w, http.StatusInternalServerError, failure)
		}
	}()
	r = r.WithContext(graphql.StartOperationTrace(r.Context()))
	for _, t := range a.transports {
		if t.Supports(r) {
			t.Do(w, r, a.exec)
			return
		}
	}
	w.Header().Set("Allow", http.MethodGet+", "+http.MethodPost)
	refuse(w, http.StatusMethodNotAllowed, runtime.Errorf(runtime.CodeInvalidInput,
		"ask by POST or GET, or over a WebSocket with the subprotocol %s", transport.Subprotocol))
}
