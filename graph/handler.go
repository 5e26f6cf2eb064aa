// Package graph serves the API of schema.graphqls over HTTP. Queries and mutations are sent by
// POST, optionally with files; queries also by GET. Server-sent events and WebSockets carry all
// kinds of operations: see package transport. Files and outputs have download addresses: see
// package download.
//
// Resolvers are thin: they convert, call the engine, and return. All errors pass one presenter, all
// strings one marshaller, and all requests one gate that checks Host and Origin.
package graph

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"

	gqlcomplexity "github.com/99designs/gqlgen/complexity"
	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/executor"
	"github.com/99designs/gqlgen/graphql/handler/extension"
	"github.com/rs/cors"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/compat"
	"github.com/rockpool/rockpool/graph/download"
	"github.com/rockpool/rockpool/graph/gate"
	"github.com/rockpool/rockpool/graph/generated"
	"github.com/rockpool/rockpool/graph/presenter"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/graph/transport/framing"
	"github.com/rockpool/rockpool/graph/transport/socket"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/guard"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/runtime/language"
	"github.com/rockpool/rockpool/runtime/share"
	"github.com/rockpool/rockpool/runtime/versions"
)

// Options are what a handler needs in addition to the engine.
type Options struct {
	Version         string
	AllowedHosts    []string       // accepted names in the Host header, without port
	AllowedOrigins  []string       // accepted origins in addition to the server's own, for example "https://admin.example.org"
	NoIntrospection bool           // hides the schema, and suggests no names
	SigningKey      []byte         // of download.KeySize bytes, so that signed addresses survive a restart
	Book            *identity.Book // authenticates the callers
	Audit           *audit.Log     // records changes; nil: nothing is recorded
	SignIn          http.Handler   // serves /auth/ without authentication; nil: nothing is there
	// Session returns the session in a request's cookie, if no page of another origin sent it;
	// nil: there are no sessions.
	Session        func(r *http.Request) (secret string, ok bool)
	Started        <-chan struct{} // closed when the engine has restored its state; nil: it has
	Compat         []compat.API    // APIs of other systems
	DisabledCompat []compat.API    // disabled ones: their paths respond with how to enable them
	Memory         *share.Memory   // for what compatible APIs keep for their callers; nil: without a limit
	Counts         *compat.Counts  // counts requests to compatible APIs; nil only without any
	// Languages are the recipes of the languages; nil: Rockpool's own.
	Languages *language.Set
	Agents    http.Handler // serves /agent/ without authentication; nil: nothing is there
	Logger    *zap.Logger
	Metrics   http.Handler // serves /metrics; nil: nothing is there

	Settings // the bounds; Handler sets the other fields
}

// Settings are those of the transports.
type Settings = transport.Settings

// ConnContext is for http.Server: with it the server detects vanished peers sooner.
var ConnContext = socket.ConnContext

// RefuseFraming refuses requests with two lengths, or with too many header fields. A framing.Reader
// has marked them.
func RefuseFraming(next http.Handler) http.Handler {
	return framing.Refuse(presenter.RefuseTyped, next)
}

// RefuseProxied refuses requests that a proxy passed on, while book requires no token. It logs the first.
func RefuseProxied(book *identity.Book, logger *zap.Logger, next http.Handler) http.Handler {
	var first sync.Once
	return gate.RefuseProxied(book.Open, func(sign string) {
		first.Do(func() {
			logger.Warn("a request came through a proxy and was refused, because the server requires no token: create one with rockpool token create; later ones aren't logged", zap.String("sign", sign))
		})
	}, next)
}

// maxComplexity is the limit of one operation's complexity; see complexity.
const maxComplexity = 50_000

// Handler serves the API at /graphql, downloads at signed addresses below /files and /outputs, the
// metrics, probes below /health, and a short page at /. The API and the metrics require
// authentication. When a request's base context ends, its subscriptions end.
func Handler(eng *engine.Engine, options Options) http.Handler {
	present := presenter.Presenter{Logger: options.Logger, Hints: !options.NoIntrospection}
	guarded := guard.New(eng, options.Book, options.Audit)
	if options.Languages == nil {
		options.Languages = language.Default()
	}
	measured := versions.New(guarded, options.Languages)
	resolver := &resolver{guard: guarded, languages: options.Languages, measured: measured, version: options.Version, links: download.NewLinks(options.SigningKey)}
	settings := options.Settings
	follower := &follower{resolver: resolver, presenter: present}
	settings.Source, settings.Present, settings.Recover = follower.follow, present.Present, present.Recover
	admission := &gate.Admission{Book: options.Book, Session: options.Session, Failed: guarded.FailureRecorder()}
	settings.Admit, settings.Subscribing = admission.Admit, guarded.AcquireSubscription
	// counted has no resolvers. It only calculates how many fields an operation has.
	counted := generated.NewExecutableSchema(generated.Config{Complexity: fields(options.Languages)})
	schema := newIntrospection(counted.Schema())
	settings.Fields = func(op *graphql.OperationContext) int {
		return gqlcomplexity.Calculate(context.Background(), counted, op.Operation, op.Variables) + schema.price(op.Operation)
	}
	settings = settings.WithDefaults()

	// Documents in the cache have passed the limits, so documentLimits knows them by it.
	documents := newDocumentCache()
	exec := newExecutor(present, generated.Config{Resolvers: resolver, Complexity: complexity(options.Languages)})
	exec.SetQueryCache(documents)
	exec.SetParserTokenLimit(transport.MaxTokens)
	exec.SetDisableSuggestion(options.NoIntrospection)
	exec.Use(documentLimits{documents})
	exec.Use(schema)
	exec.Use(starting{options.Started})
	if !options.NoIntrospection {
		exec.Use(extension.Introspection{})
	}

	mux := http.NewServeMux()
	// The first transport that supports a request serves it.
	mux.Handle("/graphql", admission.GuardOperations(api{exec: exec, presenter: present, callers: new(callers), transports: []graphql.Transport{
		transport.WebSocket{Settings: settings}, transport.SSE{Settings: settings},
		transport.Multipart{Settings: settings}, transport.POST{Settings: settings}, transport.GET{Settings: settings},
	}}))
	mux.HandleFunc("OPTIONS /graphql", func(w http.ResponseWriter, _ *http.Request) { wrongMethod(w) })
	downloads := http.NewServeMux()
	download.Handler{Links: resolver.links, Source: guarded, Callers: admission, Refuse: present.Refuse}.Register(downloads)
	// Downloads and compatible APIs need the engine's state, so they wait for the end of the start.
	for _, path := range []string{"/files/", "/outputs/"} {
		mux.Handle(path, starting{options.Started}.guard(downloads))
	}
	others := http.NewServeMux()
	methods, headers := compat.Mount(others, compat.Services{Guard: guarded, Cluster: eng, Early: settings.Early, Languages: options.Languages, Versions: measured, Version: options.Version, MaxBody: settings.MaxBody, Peers: settings.Peers, Memory: options.Memory, Logger: options.Logger}, admission, options.Counts, options.Compat...)
	for _, api := range options.Compat {
		mux.Handle(api.Path(), starting{options.Started}.guard(others))
	}
	for _, api := range options.DisabledCompat {
		mux.Handle(api.Path(), compat.Disabled(api))
	}
	if options.Agents != nil {
		mux.Handle("/agent/", options.Agents)
	}
	mux.HandleFunc("GET /{$}", welcome)
	probes{starting{options.Started}, eng, admission}.register(mux)
	if options.Metrics != nil {
		mux.Handle("GET /metrics", admission.Guard(admission.For("metrics", options.Metrics)))
	}
	crossOrigin := cors.New(cors.Options{
		AllowOriginFunc: func(origin string) bool { return gate.AllowedOrigin(options.AllowedOrigins, origin) },
		AllowedMethods:  append(methods, http.MethodGet, http.MethodHead, http.MethodPost),
		AllowedHeaders:  slices.Concat([]string{"Content-Type", "Authorization", "Last-Event-ID", "Range", "If-Range", "If-None-Match"}, transport.PreflightHeaders, headers),
		ExposedHeaders:  []string{"Content-Disposition", "Content-Length", "Content-Range", "ETag", "Mcp-Session-Id", download.LostHeader},
		MaxAge:          600,
	})
	// Host is checked for every request. Sign-in comes before the check of Origin; see signIn.
	return gate.CheckHost(options.AllowedHosts, signIn(options.SignIn, gate.CheckOrigin(options.AllowedOrigins, crossOrigin.Handler(answerOptions(mux)))))
}

// answerOptions answers OPTIONS with the methods that next's header Allow names. No route of next
// accepts the method OPTIONS itself.
func answerOptions(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodOptions {
			w = &options{ResponseWriter: w}
		}
		next.ServeHTTP(w, r)
	})
}

// options turns status 405 into 204 without a body.
type options struct {
	http.ResponseWriter
	answered bool
}

// Unwrap supports http.ResponseController.
func (w *options) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *options) WriteHeader(status int) {
	if w.answered = status == http.StatusMethodNotAllowed; w.answered {
		for _, name := range []string{"Content-Type", "Content-Length"} {
			w.Header().Del(name)
		}
		w.Header().Set("Allow", w.Header().Get("Allow")+", "+http.MethodOptions)
		status = http.StatusNoContent
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *options) Write(p []byte) (int, error) {
	if w.answered {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

// signIn serves paths below /auth/ with handler, before the check of the origin: a sign-in provider
// redirects browsers there, so handler checks which page sent a request. Nil: nothing is there.
func signIn(handler, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if handler != nil && strings.HasPrefix(r.URL.Path, "/auth/") {
			handler.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// newExecutor returns an executor with the presenter for its errors and panics.
func newExecutor(p presenter.Presenter, config generated.Config) *executor.Executor {
	exec := executor.New(generated.NewExecutableSchema(config))
	exec.SetErrorPresenter(p.Present)
	exec.SetRecoverFunc(p.Recover)
	return exec
}

// api passes each request to its transport.
type api struct {
	exec       *executor.Executor
	presenter  presenter.Presenter
	callers    *callers
	transports []graphql.Transport
}

// ServeHTTP implements http.Handler.
func (a api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if panicked := recover(); panicked != nil {
			failure := a.presenter.Present(r.Context(), a.presenter.Recover(r.Context(), panicked))
			presenter.Answer(w, http.StatusInternalServerError, failure)
		}
	}()
	r = r.WithContext(graphql.StartOperationTrace(a.callers.named(r)))
	for _, t := range a.transports {
		if t.Supports(r) {
			t.Do(w, r, a.exec)
			return
		}
	}
	wrongMethod(w)
}

// wrongMethod answers a request of a method that no transport supports.
func wrongMethod(w http.ResponseWriter) {
	w.Header().Set("Allow", http.MethodGet+", "+http.MethodPost)
	presenter.RefuseTyped(w, http.StatusMethodNotAllowed, runtime.Errorf(runtime.CodeInvalidInput,
		"send a POST or GET, or open a WebSocket with the subprotocol %s", transport.Subprotocol))
}
