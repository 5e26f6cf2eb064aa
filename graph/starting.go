package graph

import (
	"context"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/rockpool/rockpool/graph/transport"
)

// starting is a gqlgen extension for a server that responds before it has restored its state, for
// example because it waits for its cluster. It serves health and version immediately. Other
// operations wait for a while, then fail with CLUSTER_UNAVAILABLE.
type starting struct{ transport.Starting }

// ExtensionName implements graphql.HandlerExtension.
func (starting) ExtensionName() string { return "Starting" }

// Validate implements graphql.HandlerExtension.
func (starting) Validate(graphql.ExecutableSchema) error { return nil }

// MutateOperationContext implements graphql.OperationContextMutator.
func (s starting) MutateOperationContext(ctx context.Context, op *graphql.OperationContext) *gqlerror.Error {
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
