package reference

import (
	"fmt"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
)

// operation returns what writes a query, mutation or subscription.
func (r *Reference) operation(kind string) func(*ast.FieldDefinition) string {
	return func(f *ast.FieldDefinition) string {
		t := table{head: []string{"argument", "type", "what"}}
		for _, a := range f.Arguments {
			t.add(code(a.Name), r.typeLink(a.Type), prose(flat(a.Description)))
		}
		return fmt.Sprintf("### %s %s\n\n%s\n\nReturns %s.\n\n%s", kind, f.Name, paragraphs("", f.Description), r.typeLink(f.Type), t)
	}
}

// paragraphs returns the paragraphs of a description as wrapped Markdown, after a prefix in Markdown.
func paragraphs(prefix, text string) string {
	var out []string
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		out = append(out, wrap(prefix+prose(flat(paragraph)), 100))
		prefix = ""
	}
	return strings.Join(out, "\n\n")
}

func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

// typeLink returns a type with a link to its definition, if the page has one.
func (r *Reference) typeLink(t *ast.Type) string {
	text := code(t.String())
	if _, own := r.types.items[t.Name()]; own {
		return "[" + text + "](#" + strings.ToLower(t.Name()) + ")"
	}
	return text
}

// definition writes a type.
func (r *Reference) definition(d *ast.Definition) string {
	kind := map[ast.DefinitionKind]string{ast.Object: "Type", ast.Interface: "Interface", ast.Union: "Union", ast.Enum: "Enum", ast.InputObject: "Input", ast.Scalar: "Scalar"}[d.Kind]
	kinds := []string{kind}
	for _, name := range d.Interfaces {
		kinds = append(kinds, "implements [`"+name+"`](#"+strings.ToLower(name)+")")
	}
	head := fmt.Sprintf("### %s\n\n%s\n\n", d.Name, paragraphs(strings.Join(kinds, ", ")+". ", d.Description))
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
		t.add(code(name), r.typeLink(f.Type), strings.Join(whats, "<br>"))
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
func (r *Reference) values(names []string) (string, error) {
	if len(names) != 1 || r.types.items[names[0]] == nil || r.types.items[names[0]].Kind != ast.Enum {
		return "", fmt.Errorf("there is no enum %q", names)
	}
	return enumTable(r.types.items[names[0]]), nil
}

func (r *Reference) errorCodes() (string, error) {
	d := r.types.items["ErrorCode"]
	if d == nil {
		return "", fmt.Errorf("there is no enum ErrorCode")
	}
	t := table{head: []string{"code", "retryable", "what it means, and what to do"}}
	for _, v := range d.EnumValues {
		t.add(code(v.Name), map[bool]string{true: "yes", false: "no"}[r.retryable(v.Name)], prose(flat(v.Description)))
	}
	return t.String(), nil
}
