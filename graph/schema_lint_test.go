package graph

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
)

// The authors of clients rely on these conventions.
func TestSchemaFollowsItsConventions(t *testing.T) {
	for _, wrong := range lint(schema()) {
		t.Error(wrong)
	}
}

// Each convention finds its violation, and nothing else.
func TestConventionsFindViolations(t *testing.T) {
	good := `
		type Query { things(first: Int, after: String): ThingConnection! thing(id: ID!): Thing error: ErrorCode }
		type Mutation { putThing(input: PutThingInput!): PutThingPayload! dropThing(id: ID!): DropThingPayload! }
		type Subscription { thing(after: String): Thing! }
		type Thing { id: ID! ownerId: ID kind: Kind! madeAt: Time! names: [String!]! }
		enum Kind { GOOD VERY_GOOD }
		scalar Time
		enum ErrorCode { NONE }
		input PutThingInput { id: ID! names: [String!] }
		type PutThingPayload { thing: Thing! }
		type DropThingPayload { dropped: Boolean! }
		type ThingConnection { edges: [ThingEdge!]! nodes: [Thing!]! pageInfo: PageInfo! }
		type ThingEdge { cursor: String! node: Thing! }
		type PageInfo { hasNextPage: Boolean! endCursor: String }`
	for name, test := range map[string]struct{ from, to, want string }{
		"nothing":                        {"", "", ""},
		"a type in lower case":           {"Kind", "kind", "kind isn't in PascalCase"},
		"a field in snake case":          {"names: [String!]! }", "all_names: [String!]! }", "Thing.all_names isn't in camelCase"},
		"an argument in upper case":      {"thing(after: String)", "thing(After: String)", "Subscription.thing.After isn't in camelCase"},
		"a value in lower case":          {"VERY_GOOD", "veryGood", "Kind.veryGood isn't in UPPER_CASE"},
		"an input of another name":       {"PutThingInput", "ThingToPut", "ThingToPut: inputs, and only they, have names that end in Input"},
		"an object with an input's name": {"PutThingPayload", "PutThingInputs", "Mutation.putThing answers PutThingInputs!, not PutThingPayload!"},
		"a payload that may be null":     {"): DropThingPayload!", "): DropThingPayload", "Mutation.dropThing answers DropThingPayload, not DropThingPayload!"},
		"an input of another's name":     {"putThing(input: PutThingInput!)", "addThing(input: PutThingInput!)", "Mutation.addThing takes PutThingInput!, not AddThingInput!"},
		"an input that may be null":      {"input: PutThingInput!", "input: PutThingInput", "Mutation.putThing takes PutThingInput, not PutThingInput!"},
		"a page without a start":         {"things(first: Int, after: String)", "things(first: Int)", "Query.things is a page, so it has after: String"},
		"a page without a length":        {"things(first: Int, after: String)", "things(after: String)", "Query.things is a page, so it has first: Int"},
		"a length of no page":            {"thing(id: ID!)", "thing(id: ID!, first: Int)", "Query.thing has first, but is no page"},
		"a page that may be null":        {"): ThingConnection!", "): ThingConnection", "Query.things may be null, but a page can be empty"},
		"a page without its position":    {" pageInfo: PageInfo! }", " }", "ThingConnection has no pageInfo: PageInfo!"},
		"a page without cursors":         {"edges: [ThingEdge!]!", "edges: [Thing!]!", "ThingConnection has no edges: [ThingEdge!]!"},
		"an edge without its cursor":     {"cursor: String!", "position: String!", "ThingEdge has no cursor: String!"},
		"a position without an end":      {"endCursor: String", "last: String", "PageInfo has no endCursor: String"},
		"a list of nulls":                {"names: [String!]! }", "names: [String]! }", "Thing.names may hold nulls"},
		"a list that may be null":        {"names: [String!]! }", "names: [String!] }", "Thing.names may be null, but a list can be empty"},
		"an id that is text":             {"ownerId: ID", "ownerId: String", "Thing.ownerId is String, not ID"},
		"an id that may be null":         {"type Thing { id: ID!", "type Thing { id: ID", "Thing.id may be null"},
		"a time that is text":            {"madeAt: Time!", "madeAt: String!", "Thing.madeAt is String, not Time"},
		"a type that nobody uses":        {"enum ErrorCode", "type Lone { x: Int } enum ErrorCode", "Lone isn't used"},
		"deprecated without a reason":    {"ownerId: ID", "ownerId: ID @deprecated", "Thing.ownerId is deprecated without what to use instead"},
		"a default beside null":          {"first: Int, after", "first: Int = 10, after", "Query.things.first has a default that its description should say"},
	} {
		text := strings.ReplaceAll(good, test.from, test.to)
		if test.from == "" {
			text = good
		}
		bad, err := gqlparser.LoadSchema(&ast.Source{Input: text})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if found := lint(bad); !slices.Contains(found, test.want) && (test.want != "" || len(found) > 0) {
			t.Errorf("%s: found %q", name, found)
		}
	}
}

var (
	pascalCase = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
	camelCase  = regexp.MustCompile(`^[a-z][A-Za-z0-9]*$`)
	upperCase  = regexp.MustCompile(`^[A-Z][A-Z0-9]*(_[A-Z0-9]+)*$`)
)

// lint returns the violations of the conventions: GraphQL's names, inputs and payloads with the
// names of their mutations, and Relay's pages.
func lint(schema *ast.Schema) []string {
	l := &linter{used: map[string]bool{"Query": true, "Mutation": true, "Subscription": true, "ErrorCode": true}}
	for _, definition := range ours(schema) {
		l.definition(definition)
	}
	for _, definition := range ours(schema) {
		// A type that implements a used interface is used.
		used := l.used[definition.Name] || slices.ContainsFunc(definition.Interfaces, func(name string) bool { return l.used[name] })
		l.check(used, "%s isn't used", definition.Name)
	}
	slices.Sort(l.wrong)
	return l.wrong
}

type linter struct {
	used  map[string]bool
	wrong []string
}

func (l *linter) check(holds bool, format string, args ...any) {
	if !holds {
		l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
	}
}

func (l *linter) definition(d *ast.Definition) {
	l.check(pascalCase.MatchString(d.Name), "%s isn't in PascalCase", d.Name)
	l.check((d.Kind == ast.InputObject) == strings.HasSuffix(d.Name, "Input"), "%s: inputs, and only they, have names that end in Input", d.Name)
	for _, value := range d.EnumValues {
		l.check(upperCase.MatchString(value.Name), "%s.%s isn't in UPPER_CASE", d.Name, value.Name)
	}
	for _, field := range d.Fields {
		if strings.HasPrefix(field.Name, "__") {
			continue
		}
		at := d.Name + "." + field.Name
		l.element(at, field.Name, field.Type, field.Directives, field.DefaultValue)
		for _, argument := range field.Arguments {
			l.element(at+"."+argument.Name, argument.Name, argument.Type, argument.Directives, argument.DefaultValue)
		}
		if d.Kind != ast.InputObject {
			l.check(field.Name != "id" || field.Type.NonNull, "%s may be null", at)
			l.check(field.Type.Elem == nil || field.Type.NonNull, "%s may be null, but a list can be empty", at)
			l.page(at, field)
		}
		if d.Name == "Mutation" {
			l.mutation(at, field)
		}
	}
	l.connection(d)
}

// element checks the conventions that fields, arguments and inputs have in common.
func (l *linter) element(at, name string, kind *ast.Type, directives ast.DirectiveList, value *ast.Value) {
	l.used[kind.Name()] = true
	l.check(camelCase.MatchString(name), "%s isn't in camelCase", at)
	l.check(kind.Elem == nil || kind.Elem.NonNull, "%s may hold nulls", at)
	if name == "id" || strings.HasSuffix(name, "Id") {
		l.check(kind.Name() == "ID", "%s is %s, not ID", at, kind.Name())
	}
	if strings.HasSuffix(name, "At") {
		l.check(kind.Name() == "Time", "%s is %s, not Time", at, kind.Name())
	}
	if deprecated := directives.ForName("deprecated"); deprecated != nil {
		l.check(deprecated.Arguments.ForName("reason") != nil, "%s is deprecated without what to use instead", at)
	}
	l.check(value == nil, "%s has a default that its description should say", at)
}

func (l *linter) mutation(at string, field *ast.FieldDefinition) {
	name := strings.ToUpper(field.Name[:1]) + field.Name[1:]
	l.check(field.Type.String() == name+"Payload!", "%s answers %s, not %sPayload!", at, field.Type, name)
	if input := field.Arguments.ForName("input"); input != nil {
		l.check(input.Type.String() == name+"Input!", "%s takes %s, not %sInput!", at, input.Type, name)
	}
}

func (l *linter) page(at string, field *ast.FieldDefinition) {
	if !strings.HasSuffix(field.Type.Name(), "Connection") {
		l.check(field.Arguments.ForName("first") == nil, "%s has first, but is no page", at)
		return
	}
	l.check(field.Type.NonNull, "%s may be null, but a page can be empty", at)
	for _, want := range [][2]string{{"first", "Int"}, {"after", "String"}} {
		argument := field.Arguments.ForName(want[0])
		l.check(argument != nil && argument.Type.String() == want[1], "%s is a page, so it has %s: %s", at, want[0], want[1])
	}
}

// connection checks the types of pages.
func (l *linter) connection(d *ast.Definition) {
	has := func(name, kind string) {
		field := d.Fields.ForName(name)
		l.check(field != nil && field.Type.String() == kind, "%s has no %s: %s", d.Name, name, kind)
	}
	if node, is := strings.CutSuffix(d.Name, "Connection"); is {
		has("edges", "["+node+"Edge!]!")
		has("nodes", "["+node+"!]!")
		has("pageInfo", "PageInfo!")
	}
	if node, is := strings.CutSuffix(d.Name, "Edge"); is {
		has("cursor", "String!")
		has("node", node+"!")
	}
	if d.Name == "PageInfo" {
		has("hasNextPage", "Boolean!")
		has("endCursor", "String")
	}
}
