package graph

import (
	"slices"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/rockpool/rockpool/graph/generated"
	"github.com/rockpool/rockpool/runtime"
)

func schema() *ast.Schema {
	return generated.NewExecutableSchema(generated.Config{}).Schema()
}

// ours returns the types that the schema defines, without GraphQL's own.
func ours(schema *ast.Schema) []*ast.Definition {
	var types []*ast.Definition
	for name, definition := range schema.Types {
		if !definition.BuiltIn && !strings.HasPrefix(name, "__") {
			types = append(types, definition)
		}
	}
	return types
}

// The descriptions are the API's documentation, so each element has one.
func TestEveryElementIsDescribed(t *testing.T) {
	described := func(text string, path ...string) {
		if text = strings.TrimSpace(text); len(text) < 4 || !strings.ContainsAny(text[len(text)-1:], ".:…`") {
			t.Errorf("%s: description %q isn't a sentence", strings.Join(path, "."), text)
		}
	}
	for _, definition := range ours(schema()) {
		described(definition.Description, definition.Name)
		for _, field := range definition.Fields {
			if strings.HasPrefix(field.Name, "__") {
				continue
			}
			described(field.Description, definition.Name, field.Name)
			for _, argument := range field.Arguments {
				described(argument.Description, definition.Name, field.Name, argument.Name)
			}
		}
		for _, value := range definition.EnumValues {
			described(value.Description, definition.Name, value.Name)
		}
	}
}

// The enums have all values of the closed sets in Go.
func TestEnumsHaveAllValues(t *testing.T) {
	values := func(enum string) (all []string) {
		for _, v := range schema().Types[enum].EnumValues {
			all = append(all, v.Name)
		}
		slices.Sort(all)
		return all
	}
	var codes, outcomes []string
	for _, code := range runtime.Codes() {
		codes = append(codes, string(code))
	}
	for _, outcome := range runtime.Outcomes() {
		outcomes = append(outcomes, string(outcome))
	}
	var causes []string
	for _, cause := range runtime.LossCauses() {
		causes = append(causes, string(cause))
	}
	slices.Sort(causes)
	if want := values("OutputLossCause"); !slices.Equal(causes, want) {
		t.Errorf("causes of a loss %v, want %v", causes, want)
	}
	slices.Sort(codes)
	slices.Sort(outcomes)
	if want := values("ErrorCode"); !slices.Equal(codes, want) {
		t.Errorf("codes %v, want %v", codes, want)
	}
	if want := values("Outcome"); !slices.Equal(outcomes, want) {
		t.Errorf("outcomes %v, want %v", outcomes, want)
	}
}
