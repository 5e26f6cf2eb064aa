// Package graph serves the API of schema.graphqls over HTTP. Queries and mutations are sent by
// POST, optionally with files; queries also by GET. Server-sent events and WebSockets carry all
// kinds of operations: see package transport. Files and outputs have download addresses: see
// package download.
//
// Resolvers are thin: they convert, call the engine, and return. All errors pass one presenter, and
// all strings one marshaller. Package routes checks and authenticates requests before.
package graph

import (
	"context"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"

	gqlcomplexity "github.com/99designs/gqlgen/complexity"
	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/executor"
	"github.com/99designs/gqlgen/graphql/handler/extension"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/graph/download"
	"github.com/rockpool/rockpool/graph/generated"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/language"
	"github.com/rockpool/rockpool/runtime/versions"
)

// Options are what the API needs.
type Options struct {
	Engine          *engine.Services
	Links           *download.Links
	Languages       *language.Set
	Versions        *versions.Cache // of the languages
	Version         string
	NoIntrospection bool // hides the schema, and suggests no names
	Starting        transport.Starting
	Logger          *zap.Logger

	transport.Settings // with defaults: the bounds, and Admit; Handler sets the other functions
}

// maxComplexity is the limit of one operation's complexity; see complexity.
const maxComplexity = 50_000

// Handler serves operations to authenticated callers. When a request's base context ends, its
// subscriptions end.
func Handler(o Options) http.Handler {
	present := transport.Presenter{Logger: o.Logger, Hints: !o.NoIntrospection}
	resolver := &resolver{engine: o.Engine, languages: o.Languages, measured: o.Versions, version: o.Version, links: o.Links}
	follower := &follower{resolver: resolver, presenter: present}
	settings := o.Settings
	settings.Source, settings.Present, settings.Recover = follower.follow, present.Present, present.Recover
	settings.Subscribing = o.Engine.Callers.AcquireSubscription
	// counted has no resolvers. It only calculates how many fields an operation has.
	counted := generated.NewExecutableSchema(generated.Config{Complexity: fields(o.Languages)})
	schema := newIntrospection(counted.Schema())
	settings.Fields = func(op *graphql.OperationContext) int {
		return gqlcomplexity.Calculate(context.Background(), counted, op.Operation, op.Variables) + schema.price(op.Operation)
	}

	// Documents in the cache have passed the limits, so documentLimits knows them by it.
	documents := newDocumentCache()
	exec := newExecutor(present, generated.Config{Resolvers: resolver, Complexity: complexity(o.Languages)})
	exec.SetQueryCache(documents)
	exec.SetParserTokenLimit(transport.MaxTokens)
	exec.SetDisableSuggestion(o.NoIntrospection)
	exec.Use(documentLimits{documents})
	exec.Use(schema)
	exec.Use(startingExtension{o.Starting})
	if !o.NoIntrospection {
		exec.Use(extension.Introspection{})
	}
	return &api{settings: settings, exec: exec, presenter: present}
}

// newExecutor returns an executor with the presenter for its errors and panics.
func newExecutor(p transport.Presenter, config generated.Config) *executor.Executor {
	exec := executor.New(generated.NewExecutableSchema(config))
	exec.SetErrorPresenter(p.Present)
	exec.SetRecoverFunc(p.Recover)
	exec.AroundFields(nullForZero)
	return exec
}

// nullForZero returns nil, which the API shows as null, for a zero value in a field that may be null.
// Where zero has another meaning, the field's Go type is a pointer. It leaves out introspection, whose
// types are gqlgen's.
func nullForZero(ctx context.Context, next graphql.Resolver) (any, error) {
	value, err := next(ctx)
	field := graphql.GetFieldContext(ctx)
	if field.Field.Definition.Type.NonNull || strings.HasPrefix(field.Object, "__") {
		return value, err
	}
	if v := reflect.ValueOf(value); v.IsValid() && v.IsZero() {
		return nil, err
	}
	return value, err
}

// api serves requests.
type api struct {
	settings   transport.Settings
	exec       *executor.Executor
	presenter  transport.Presenter
	webSockets atomic.Uint64
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if panicked := recover(); panicked != nil {
			failure := a.presenter.Present(r.Context(), a.presenter.Recover(r.Context(), panicked))
			transport.Answer(w, http.StatusInternalServerError, failure)
		}
	}()
	a.settings.Serve(w, r.WithContext(graphql.StartOperationTrace(a.named(r))), a.exec)
}

// A callerKey is the key of a caller's name in a request's context.
type callerKey struct{}

// named returns r's context with its caller's name, for callerOf. Callers whose claims wait take
// turns. A WebSocket is a caller. All plain HTTP requests of one peer (see clients.Limiter) are one
// caller, also over several connections, since a client opens a connection for each waiting request.
// The server's one token doesn't distinguish callers.
func (a *api) named(r *http.Request) context.Context {
	name := clients.PeerName(r.Context())
	if transport.IsWebSocket(r) {
		name = "websocket " + strconv.FormatUint(a.webSockets.Add(1), 10)
	}
	return context.WithValue(r.Context(), callerKey{}, name)
}

// callerOf returns the name of the caller that ctx belongs to, or "".
func callerOf(ctx context.Context) string {
	name, _ := ctx.Value(callerKey{}).(string)
	return name
}

// startingExtension is a gqlgen extension for a server that responds before it has restored its state, for
// example because it waits for its cluster. It serves health and version immediately. Other
// operations wait for a while, then fail with CLUSTER_UNAVAILABLE.
type startingExtension struct{ transport.Starting }

func (startingExtension) ExtensionName() string { return "Starting" }

func (startingExtension) Validate(graphql.ExecutableSchema) error { return nil }

// MutateOperationContext implements graphql.OperationContextMutator.
func (s startingExtension) MutateOperationContext(ctx context.Context, op *graphql.OperationContext) *gqlerror.Error {
	if knownAtStart(op.Operation) {
		return nil
	}
	if err := s.Wait(ctx); err != nil {
		return gqlerror.Wrap(err)
	}
	return nil
}

// knownAtStart reports whether an operation needs only what is known from the start.
func knownAtStart(op *ast.OperationDefinition) bool {
	for _, selection := range op.SelectionSet {
		field, ok := selection.(*ast.Field)
		if !ok {
			return false
		}
		switch field.Name {
		case "health", "version", "__typename", "__schema", "__type":
		default:
			return false
		}
	}
	return true
}
