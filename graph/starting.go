package graph

import (
	"context"
	"net/http"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/rockpool/rockpool/graph/presenter"
	"github.com/rockpool/rockpool/runtime"
)

// startingPatience is how long a request waits for a server that is starting. Most starts take
// less.
const startingPatience = 5 * time.Second

// starting is a gqlgen extension for a server that responds before it has restored its state, for
// example because it waits for its cluster. It serves health and version immediately. Other
// operations wait for startingPatience, then fail with CLUSTER_UNAVAILABLE.
type starting struct{ over <-chan struct{} } // closed then; nil: it is

// ExtensionName implements graphql.HandlerExtension.
func (starting) ExtensionName() string { return "Starting" }

// Validate implements graphql.HandlerExtension.
func (starting) Validate(graphql.ExecutableSchema) error { return nil }

// MutateOperationContext implements graphql.OperationContextMutator.
func (s starting) MutateOperationContext(ctx context.Context, op *graphql.OperationContext) *gqlerror.Error {
	if s.over == nil || knownAtStart(op.Operation) {
		return nil
	}
	if err := s.wait(ctx); err != nil {
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

// isOver reports whether the start is over. It doesn't block.
func (s starting) isOver() bool {
	select {
	case <-s.over:
		return true
	default:
		return s.over == nil
	}
}

// wait waits for the end of the start, at most startingPatience. It returns CLUSTER_UNAVAILABLE if
// that comes later, or ctx ends.
func (s starting) wait(ctx context.Context) *runtime.Error {
	if s.isOver() {
		return nil
	}
	late := time.NewTimer(startingPatience)
	defer late.Stop()
	select {
	case <-s.over:
		return nil
	case <-late.C:
	case <-ctx.Done():
	}
	return runtime.Errorf(runtime.CodeClusterUnavailable, "the server is starting: it waits for its cluster: try again later; health says more")
}

// guard serves requests with next when the start is over.
func (s starting) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.wait(r.Context()); err != nil {
			presenter.RefuseTyped(w, http.StatusServiceUnavailable, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}
