package graph

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/google/go-cmp/cmp"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/validator/rules"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/engine"
)

// encoded is an event of output as a subscription gets it.
func encoded(t *testing.T, query string, variables map[string]any, event engine.Event) map[string]any {
	t.Helper()
	doc, errs := gqlparser.LoadQueryWithRules(schema(), query, rules.NewDefaultRules())
	if errs != nil {
		t.Fatal(errs)
	}
	op := &graphql.OperationContext{Doc: doc, Operation: doc.Operations[0], Variables: variables}
	field := graphql.CollectFields(op, op.Operation.SelectionSet, []string{"Subscription"})[0]
	text := newOutputEncoder(op, field).encode(event)
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil || compact.Len() != len(text) {
		t.Errorf("%s isn't one compact line", text)
	}
	return out["data"].(map[string]any)
}

func TestOutputIsEncodedAsSelected(t *testing.T) {
	event := engine.Event{Kind: engine.EventOutput, Cursor: "c-_1", Stream: runtime.Stderr, Data: []byte("a\xff\"\n"), At: time.Date(2026, 11, 20, 22, 27, 0, 120, time.FixedZone("CET", 3600))}
	all := map[string]any{"__typename": "ExecutionOutput", "cursor": "c-_1", "stream": "STDERR", "text": "a�\"\n", "base64": "Yf8iCg==", "at": "2026-11-20T21:27:00.00000012Z"}
	for query, want := range map[string]map[string]any{
		`subscription { executionEvents(executionId: 1) { __typename cursor ... on ExecutionOutput { stream text base64 at } } }`: {"executionEvents": all},
		`subscription { e: executionEvents(executionId: 1) { ...f } } fragment f on ExecutionEvent { c: cursor ... on ExecutionOutput { t: text u: text } }`: {
			"e": map[string]any{"c": "c-_1", "t": "a�\"\n", "u": "a�\"\n"}},
		`subscription { executionEvents(executionId: 1) { ... on ExecutionFinished { cursor } } }`: {"executionEvents": map[string]any{}},
		`subscription($no: Boolean = false) { executionEvents(executionId: 1) { cursor @include(if: $no) ... on ExecutionOutput @skip(if: $no) { stream } } }`: {
			"executionEvents": map[string]any{"stream": "STDERR"}},
	} {
		if diff := cmp.Diff(want, encoded(t, query, map[string]any{"no": false}, event)); diff != "" {
			t.Errorf("%s: %s", query, diff)
		}
	}
}

// Encoders that encode the same share; others don't.
func TestSelectionsTellEncodersApart(t *testing.T) {
	seen := map[string]string{}
	for _, query := range []string{
		`subscription { executionEvents(executionId: 1) { cursor } }`,
		`subscription { e: executionEvents(executionId: 1) { cursor } }`,
		`subscription { executionEvents(executionId: 1) { c: cursor } }`,
		`subscription { executionEvents(executionId: 1) { cursor __typename } }`,
		`subscription { executionEvents(executionId: 1) { cursor ... on ExecutionOutput { text } } }`,
		`subscription { executionEvents(executionId: 1) { cursor ... on ExecutionOutput { base64 } } }`,
		`subscription { executionEvents(executionId: 1) { cursor ... on ExecutionOutput { base64: text } } }`,
	} {
		doc, errs := gqlparser.LoadQueryWithRules(schema(), query, rules.NewDefaultRules())
		if errs != nil {
			t.Fatal(errs)
		}
		op := &graphql.OperationContext{Doc: doc, Operation: doc.Operations[0]}
		field := graphql.CollectFields(op, op.Operation.SelectionSet, []string{"Subscription"})[0]
		selection := newOutputEncoder(op, field).selection()
		if other, there := seen[selection]; there {
			t.Errorf("%s and %s share", query, other)
		}
		seen[selection] = query
	}
}
