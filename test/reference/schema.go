package reference

import (
	"fmt"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
)

// operation returns what writes a query, mutation or subscription.
func (b *Book) operation(kind string) func(*ast.FieldDefinition) string {
	return func(f *ast.FieldDefinition) string {
		t := table{head: []string{"argument", "type", "what"}}
		for _, a := range f.Arguments {
			t.add(code(a.Name), b.typeLink(a.Type), prose(flat(a.Description)))
		}
		return fmt.Sprintf("### %s %s\n\n%s\n\nReturns %s.\n\n%s", kind, f.Name, wrap(prose(flat(f.Description)), 100), b.typeLink(f.Type), t)
	}
}

func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

// typeLink returns a type with a link to its definition, if the page has one.
func (b *Book) typeLink(t *ast.Type) string {
	text := code(t.String())
	if _, own := b.types.items[t.Name()]; own {
		return "[" + text + "](#" + strings.ToLower(t.Name()) + ")"
	}
	return text
}

// definition writes a type.
func (b *Book) definition(d *ast.Definition) string {
	kind := map[ast.DefinitionKind]string{ast.Object: "Type", ast.Interface: "Interface", ast.Union: "Union", ast.Enum: "Enum", ast.InputObject: "Input", ast.Scalar: "Scalar"}[d.Kind]
	kinds := []string{kind}
	for _, name := range d.Interfaces {
		kinds = append(kinds, "implements [`"+name+"`](#"+strings.ToLower(name)+")")
	}
	head := fmt.Sprintf("### %s\n\n%s\n\n", d.Name, wrap(strings.Join(kinds, ", ")+". "+prose(flat(d.Description)), 100))
	if d.Kind == ast.Enum {
		return head + enumTable(d)
	}
	t := table{head: []string{"field", "type", "what"}}
	for _, f := range d.Fields {
		if strings.HasPrefix(f.Name, "__") {
			continue
		}
		name, whats := f.Name, []string{prose(flat(f.Description))}
		var arguments []string
		for _, a := range f.Arguments {
			arguments = append(arguments, a.Name+": "+a.Type.String())
			whats = append(whats, "`"+a.Name+"`: "+prose(flat(a.Description)))
		}
		if len(arguments) > 0 {
			name += "(" + strings.Join(arguments, ", ") + ")"
		}
		t.add(code(name), b.typeLink(f.Type), strings.Join(whats, "<br>"))
	}
	return head + t.String()
}

func enumTable(d *ast.Definition) string {
	t := table{head: []string{"value", "what"}}
	for _, v := range d.EnumValues {
		t.add(code(v.Name), prose(flat(v.Description)))
	}
	return t.String()
}

// values has the values of an enum, which another page may have as well.
func (b *Book) values(names []string) (string, error) {
	if len(names) != 1 || b.types.items[names[0]] == nil || b.types.items[names[0]].Kind != ast.Enum {
		return "", fmt.Errorf("there is no enum %q", names)
	}
	return enumTable(b.types.items[names[0]]), nil
}

func (b *Book) errorCodes() (string, error) {
	d := b.types.items["ErrorCode"]
	if d == nil {
		return "", fmt.Errorf("there is no enum ErrorCode")
	}
	t := table{head: []string{"code", "retryable", "what it means, and what to do"}}
	for _, v := range d.EnumValues {
		t.add(code(v.Name), map[bool]string{true: "yes", false: "no"}[b.retryable(v.Name)], prose(flat(v.Description)))
	}
	return t.String(), nil
}
