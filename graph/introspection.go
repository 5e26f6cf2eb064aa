package graph

import (
	"context"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/handler/extension"
	"github.com/99designs/gqlgen/graphql/handler/lru"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/rockpool/rockpool/runtime"
)

// introspection is a gqlgen extension. It limits the complexity of operations as its embedded
// extension does, which takes __schema for free, and adds the price of introspection. It keeps the
// latest answers to documents that only read the schema, since every client sends the same.
type introspection struct {
	*extension.ComplexityLimit
	lengths map[string]int // mean lengths of lists of the schema, by field; others are objects
	answers graphql.Cache[[]byte]
}

// Bounds of the answers that introspection keeps.
const (
	keptAnswers = 4
	keptAnswer  = 2 << 20 // bytes
)

func newIntrospection(schema *ast.Schema) introspection {
	fields, arguments, values, all := 0, 0, 0, len(schema.Types)
	for _, t := range schema.Types {
		fields += len(t.Fields)
		values += len(t.EnumValues)
		for _, f := range t.Fields {
			arguments += len(f.Arguments)
		}
	}
	mean := func(total, of int) int { return (total + of - 1) / of }
	return introspection{
		ComplexityLimit: extension.FixedComplexityLimit(maxComplexity), answers: lru.New[[]byte](keptAnswers),
		lengths: map[string]int{
			"types": all, "directives": len(schema.Directives), "fields": mean(fields, all), "inputFields": mean(fields, all), "args": mean(arguments, fields),
			"enumValues": mean(values, all), "possibleTypes": 2, "interfaces": 2, "locations": 4,
		},
	}
}

func (introspection) ExtensionName() string { return "Introspection price" }

// MutateOperationContext implements graphql.OperationContextMutator.
func (i introspection) MutateOperationContext(ctx context.Context, op *graphql.OperationContext) *gqlerror.Error {
	err := i.ComplexityLimit.MutateOperationContext(ctx, op)
	if stats := extension.GetComplexityStats(graphql.WithOperationContext(ctx, op)); err == nil && stats != nil {
		if stats.Complexity += i.price(op.Operation); stats.Complexity > stats.ComplexityLimit {
			return gqlerror.Wrap(runtime.Errorf(runtime.CodeLimitExceeded, "the operation is too large: its complexity is %d with the price of introspection, and at most %d is allowed: ask for less of the schema, or read it once", stats.Complexity, stats.ComplexityLimit))
		}
	}
	return err
}

// price returns the part of an operation's complexity that is introspection. GraphiQL's costs 31,000.
func (i introspection) price(op *ast.OperationDefinition) int { return i.nodes(op.SelectionSet, false) }

// nodes returns how many fields of the schema the answer to a selection has. within says that the
// selection is of a type of the schema.
func (i introspection) nodes(set ast.SelectionSet, within bool) (n int) {
	const most = 1 << 40
	for _, selection := range set {
		switch s := selection.(type) {
		case *ast.Field:
			if within || s.Name == "__schema" || s.Name == "__type" {
				child := max(i.lengths[s.Name], 1) * i.nodes(s.SelectionSet, true)
				if s.Name == "ofType" { // most types are wrapped once, if at all
					child /= 2
				}
				n += 1 + child
			}
		case *ast.InlineFragment:
			n += i.nodes(s.SelectionSet, within)
		case *ast.FragmentSpread:
			n += i.nodes(s.Definition.SelectionSet, within)
		}
		n = min(n, most)
	}
	return n
}

// InterceptOperation implements graphql.OperationInterceptor.
func (i introspection) InterceptOperation(ctx context.Context, next graphql.OperationHandler) graphql.ResponseHandler {
	op := graphql.GetOperationContext(ctx)
	if !constant(op.Operation) {
		return next(ctx)
	}
	key := op.OperationName + "\n" + op.RawQuery
	if data, known := i.answers.Get(ctx, key); known {
		return graphql.OneShot(&graphql.Response{Data: data})
	}
	answer := next(ctx)
	return func(ctx context.Context) *graphql.Response {
		response := answer(ctx)
		if response != nil && len(response.Errors) == 0 && len(response.Data) <= keptAnswer && len(key) <= cachedLength {
			i.answers.Add(ctx, key, response.Data)
		}
		return response
	}
}

// constant reports whether each answer to an operation is the same, because it only reads the
// schema.
func constant(op *ast.OperationDefinition) bool {
	for _, selection := range op.SelectionSet {
		field, ok := selection.(*ast.Field)
		if !ok || field.Name != "__schema" && field.Name != "__type" {
			return false
		}
	}
	return len(op.VariableDefinitions) == 0
}
