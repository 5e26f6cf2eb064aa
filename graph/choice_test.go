package graph

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// An input needs exactly one of several fields. Any other number is INVALID_INPUT with the field's
// name. That holds for inputs as literals, as one variable, and with a variable for each field. A
// null field counts as missing.
func TestExactlyOneOfSeveralFieldsIsRequired(t *testing.T) {
	b := newBed(t)
	b.environment("a", 2)
	runner := b.claim("a")
	id := b.start(in{"runnerId": runner, "command": []string{"cat"}, "stdin": true})
	write := func(file in) in { return in{"runnerId": runner, "write": []any{in{"path": "a", "text": ""}, file}} }
	run := func(fields in) in { fields["environmentId"] = "a"; return fields }
	start := func(fields in) in { fields["runnerId"] = runner; return fields }
	stdin := func(fields in) in { fields["executionId"] = id; return fields }
	for _, test := range []struct {
		mutation string
		input    in
		field    any // nil means the input is valid
	}{
		{"startExecution", start(in{"command": []any{"true"}, "shell": "true"}), "command"},
		{"startExecution", start(in{"command": []any{}, "shell": "true"}), "command"},
		{"startExecution", start(in{}), "command"},
		{"startExecution", start(in{"command": nil, "shell": nil}), "command"},
		{"startExecution", start(in{"command": []any{}}), "command"},
		{"startExecution", start(in{"command": []any{""}}), "command.0"},
		{"startExecution", start(in{"shell": ""}), "shell"},
		{"startExecution", start(in{"command": []any{"true"}, "shell": nil}), nil},
		{"startExecution", start(in{"command": nil, "shell": "true"}), nil},
		{"startExecution", start(in{"shell": "true", "labels": []any{in{"name": "", "value": ""}}}), "labels"},
		{"run", run(in{"shell": "true", "labels": []any{in{"name": "", "value": ""}}}), "labels"},
		{"run", run(in{"command": []any{"true"}, "shell": "true"}), "command"},
		{"run", run(in{}), "command"},
		{"run", run(in{"command": nil, "shell": nil}), "command"},
		{"run", run(in{"shell": "true", "files": []any{in{"path": "a"}}}), "files.0.text"},
		{"run", run(in{"shell": "true", "files": []any{in{"path": "a", "text": "", "base64": ""}}}), "files.0.text"},
		{"run", run(in{"shell": "true", "command": nil, "files": nil, "waitFor": 30}), nil},
		{"updateFiles", write(in{"path": "b"}), "write.1.text"},
		{"updateFiles", write(in{"path": "b", "text": nil, "base64": nil, "directory": false}), "write.1.text"},
		{"updateFiles", write(in{"path": "b", "text": "", "base64": ""}), "write.1.text"},
		{"updateFiles", write(in{"path": "b", "text": "", "directory": true}), "write.1.directory"},
		{"updateFiles", write(in{"path": "b", "base64": "", "directory": true}), "write.1.directory"},
		{"updateFiles", write(in{"path": "b", "text": nil, "base64": ""}), nil},
		{"updateFiles", write(in{"path": "c", "text": nil, "base64": nil, "directory": true}), nil},
		{"writeStdin", stdin(in{"text": "a", "base64": "YQ=="}), "text"},
		{"writeStdin", stdin(in{"text": "", "base64": ""}), "text"},
		{"writeStdin", stdin(in{}), "text"},
		{"writeStdin", stdin(in{"text": nil, "base64": nil, "close": false}), "text"},
		{"writeStdin", stdin(in{"text": "a", "base64": nil}), nil},
		{"writeStdin", stdin(in{"text": nil, "base64": "YQ=="}), nil},
	} {
		for form, request := range forms(test.mutation, test.input) {
			code, field := b.send(request.query, request.variables, nil)
			if test.field == nil && code != nil || test.field != nil && (code != "INVALID_INPUT" || field != test.field) {
				t.Errorf("%s of %v, %s: %v for %v, want %v", test.mutation, test.input, form, code, field, test.field)
			}
		}
	}
	b.send(`mutation($id: ID!) { cancelExecution(id: $id) { execution { id } } }`, in{"id": id}, &struct{}{})
}

type written struct {
	query     string
	variables in
}

// forms returns the ways to write one input.
func forms(mutation string, input in) map[string]written {
	kind := schema().Mutation.Fields.ForName(mutation).Arguments.ForName("input").Type
	answer := "{ __typename }"
	fields := schema().Types[kind.Name()].Fields
	var declared, used []string
	for _, name := range slices.Sorted(maps.Keys(input)) {
		declared = append(declared, "$"+name+": "+fields.ForName(name).Type.String())
		used = append(used, name+": $"+name)
	}
	return map[string]written{
		"a literal":    {fmt.Sprintf("mutation { %s(input: %s) %s }", mutation, literal(input), answer), nil},
		"one variable": {fmt.Sprintf("mutation($in: %s) { %s(input: $in) %s }", kind, mutation, answer), in{"in": input}},
		"a variable for each": {
			fmt.Sprintf("mutation(%s) { %s(input: {%s}) %s }", strings.Join(declared, ", "), mutation, strings.Join(used, ", "), answer), input},
	}
}

// literal writes a value as a GraphQL literal: as JSON, except for the names.
func literal(value any) string {
	switch v := value.(type) {
	case in:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, name+": "+literal(v[name]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		var parts []string
		for _, element := range v {
			parts = append(parts, literal(element))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	text, _ := json.Marshal(value)
	return string(text)
}
