package graph

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/rockpool/rockpool/graph/generated"
)

func schema() *ast.Schema {
	return generated.NewExecutableSchema(generated.Config{}).Schema()
}

// ours are the types that the schema defines, without GraphQL's own.
func ours(schema *ast.Schema) []*ast.Definition {
	var types []*ast.Definition
	for name, definition := range schema.Types {
		if !definition.BuiltIn && !strings.HasPrefix(name, "__") {
			types = append(types, definition)
		}
	}
	return types
}

// The descriptions are the API's documentation, so there is no element without.
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

// Everything that is served is as the contract has it, where the contract lies
// beside the repository: the same names, types, arguments and interfaces.
func TestSchemaIsPartOfTheContract(t *testing.T) {
	text, err := os.ReadFile("../../shared/api.graphqls")
	if errors.Is(err, fs.ErrNotExist) {
		t.Log("no contract beside the repository: nothing to compare with")
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	contract, err := gqlparser.LoadSchema(&ast.Source{Name: "api.graphqls", Input: string(text)})
	if err != nil {
		t.Fatal(err)
	}
	for _, definition := range ours(schema()) {
		want := contract.Types[definition.Name]
		if want == nil {
			t.Errorf("%s isn't in the contract", definition.Name)
			continue
		}
		compareTypes(t, definition, want)
	}
}

func compareTypes(t *testing.T, have, want *ast.Definition) {
	t.Helper()
	if have.Kind != want.Kind || strings.Join(have.Interfaces, " ") != strings.Join(want.Interfaces, " ") {
		t.Errorf("%s is %s %v, the contract has %s %v", have.Name, have.Kind, have.Interfaces, want.Kind, want.Interfaces)
	}
	for _, field := range have.Fields {
		if strings.HasPrefix(field.Name, "__") {
			continue
		}
		expected := want.Fields.ForName(field.Name)
		if expected == nil {
			t.Errorf("%s.%s isn't in the contract", have.Name, field.Name)
			continue
		}
		if signature(field) != signature(expected) {
			t.Errorf("%s.%s, the contract has %s", have.Name, signature(field), signature(expected))
		}
	}
	for _, value := range have.EnumValues {
		if want.EnumValues.ForName(value.Name) == nil {
			t.Errorf("%s.%s isn't in the contract", have.Name, value.Name)
		}
	}
	if have.Kind == ast.Enum && len(have.EnumValues) != len(want.EnumValues) {
		t.Errorf("%s has %d values, the contract %d", have.Name, len(have.EnumValues), len(want.EnumValues))
	}
}

func signature(field *ast.FieldDefinition) string {
	var arguments []string
	for _, argument := range field.Arguments {
		arguments = append(arguments, argument.Name+": "+argument.Type.String())
	}
	return field.Name + "(" + strings.Join(arguments, ", ") + "): " + field.Type.String()
}
