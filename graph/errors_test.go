package graph

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"
)

func TestErrorsOfTheDocumentNameTheField(t *testing.T) {
	url, logs := served(t, site{})
	for _, test := range []struct{ name, body, code, field string }{
		{"no JSON", `{"query"`, "INVALID_INPUT", ""},
		{"no GraphQL", `{"query": "{"}`, "INVALID_INPUT", ""},
		{"unknown field", `{"query": "{ versions }"}`, "INVALID_INPUT", ""},
		{"first of zero", `{"query": "{ runners(first: 0) { totalCount } }"}`, "INVALID_INPUT", "first"},
		{"no cursor", `{"query": "{ runners(after: \"?\") { totalCount } }"}`, "INVALID_INPUT", "after"},
		{"waitFor of a week", `{"query": "{ execution(id: 1, waitFor: 604800) { id } }"}`, "INVALID_INPUT", "waitFor"},
		{"variable of another type", `{"query": "mutation($i: WriteStdinInput!) { writeStdin(input: $i) { offset } }", "variables": {"i": {"executionId": "x", "close": "yes"}}}`,
			"INVALID_INPUT", "i.close"},
		{"literal that isn't base64", `{"query": "mutation { writeStdin(input: {executionId: 1, base64: \"?\"}) { offset } }"}`, "INVALID_INPUT", "base64"},
		{"both text and base64", `{"query": "mutation { writeStdin(input: {executionId: 1, text: \"\", base64: \"\"}) { offset } }"}`, "INVALID_INPUT", "text"},
		{"neither text nor base64", `{"query": "mutation { updateFiles(input: {runnerId: 1, write: [{path: \"a\", text: \"\"}, {path: \"b\"}]}) { written } }"}`, "INVALID_INPUT", "write.1.text"},
		{"a directory with text", `{"query": "mutation { updateFiles(input: {runnerId: 1, write: [{path: \"a\", text: \"\", directory: true}]}) { written } }"}`, "INVALID_INPUT", "write.0.directory"},
		{"a mode that is none", `{"query": "mutation { updateFiles(input: {runnerId: 1, write: [{path: \"a\", text: \"\", mode: \"999\"}]}) { written } }"}`, "INVALID_INPUT", "write.0.mode"},
		{"too much at once", `{"query": "{ runners(first: 1000) { nodes { files(first: 1000) { nodes { path } } } } }"}`, "LIMIT_EXCEEDED", ""},
		{"too long a document", fmt.Sprintf(`{"query": "{ %s }"}`, strings.Repeat("version ", 20_001)), "LIMIT_EXCEEDED", ""},
		{"a subscription by POST", `{"query": "subscription { poolStatus { idle } }"}`, "INVALID_INPUT", ""},
	} {
		got := ask(t, "POST", url, test.body, nil)
		if len(got.Errors) != 1 || got.code() != test.code || orNone(got.Errors[0].Extensions["field"]) != test.field {
			t.Errorf("%s: %d %+v", test.name, got.Status, got.Errors)
			continue
		}
		if got.Errors[0].Extensions["retryable"] != false || len(got.Errors[0].Message) > 300 {
			t.Errorf("%s: %+v", test.name, got.Errors[0])
		}
	}
	if logs.Len() > 0 {
		t.Errorf("what a client did wrong was logged: %v", logs.All())
	}
}

func orNone(field any) string {
	if field == nil {
		return ""
	}
	return fmt.Sprint(field)
}

// The engine has no store here, so a call panics. The client gets an id, the log the details.
func TestPanicsBecomeInternalWithoutDetail(t *testing.T) {
	url, logs := served(t, site{})
	got := ask(t, "POST", url, `{"query": "{ executions { totalCount } }"}`, nil)
	if len(got.Errors) != 1 || got.code() != "INTERNAL" || got.Errors[0].Extensions["retryable"] != true {
		t.Fatalf("%+v", got)
	}
	if strings.Contains(got.Errors[0].Message, "panic") || strings.Contains(got.Errors[0].Message, ".go") {
		t.Errorf("the client saw %q", got.Errors[0].Message)
	}
	entries := logs.FilterField(zap.String("id", fmt.Sprint(got.Errors[0].Extensions["id"]))).All()
	if len(entries) != 1 || logs.Len() != 1 || !strings.Contains(fmt.Sprint(entries[0].ContextMap()["error"]), "panic") {
		t.Errorf("the log has %v", logs.All())
	}
}
