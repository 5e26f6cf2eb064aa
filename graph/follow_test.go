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

	"github.com/rockpool/rockpool/graph/generated"
	"github.com/rockpool/rockpool/graph/model"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/events"
)

// encoded returns an event of output as a subscription gets it.
func encoded(t *testing.T, query string, variables map[string]any, event events.Event) map[string]any {
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

// output is an event with a value in every field.
var output = events.Event{
	Kind: events.Output, Cursor: "c-_1", Stream: runtime.Stderr, Data: []byte("a\xff\"\n"),
	At: time.Date(2026, 11, 20, 22, 27, 0, 120, time.FixedZone("CET", 3600)),
}

// encodedByExecutor returns the event as gqlgen encodes it.
func encodedByExecutor(t *testing.T, query string, event events.Event) map[string]any {
	t.Helper()
	events := make(chan model.ExecutionEvent, 1)
	exec := newExecutor(transport.Presenter{}, generated.Config{Resolvers: streamResolver{resolver: &resolver{}, events: events}})
	ctx := graphql.StartOperationTrace(t.Context())
	op, errs := exec.CreateOperationContext(ctx, &graphql.RawParams{Query: query})
	if errs != nil {
		t.Fatal(errs)
	}
	respond, ctx := exec.DispatchOperation(ctx, op)
	events <- model.NewExecutionEvent(event)
	response := respond(ctx)
	var out map[string]any
	if err := json.Unmarshal(response.Data, &out); err != nil || response.Errors != nil {
		t.Fatalf("%s: %v %v", response.Data, err, response.Errors)
	}
	return out
}

// newOutputEncoder knows the fields of ExecutionOutput by name. It must encode each as gqlgen does.
func TestEveryFieldOfOutputIsEncoded(t *testing.T) {
	fields := []string{"__typename"}
	for _, field := range schema().Types["ExecutionOutput"].Fields {
		fields = append(fields, field.Name)
	}
	for _, field := range fields {
		query := `subscription { executionEvents(executionId: "1") { ... on ExecutionOutput { ` + field + ` } } }`
		if diff := cmp.Diff(encodedByExecutor(t, query, output), encoded(t, query, nil, output)); diff != "" {
			t.Errorf("%s: %s", field, diff)
		}
	}
}

func TestOutputIsEncodedAsSelected(t *testing.T) {
	all := map[string]any{"__typename": "ExecutionOutput", "cursor": "c-_1", "stream": "STDERR", "text": "a�\"\n", "base64": "Yf8iCg==", "at": "2026-11-20T21:27:00.00000012Z"}
	for query, want := range map[string]map[string]any{
		`subscription { executionEvents(executionId: 1) { __typename cursor ... on ExecutionOutput { stream text base64 at } } }`: {"executionEvents": all},
		`subscription { e: executionEvents(executionId: 1) { ...f } } fragment f on ExecutionEvent { c: cursor ... on ExecutionOutput { t: text u: text } }`: {
			"e": map[string]any{"c": "c-_1", "t": "a�\"\n", "u": "a�\"\n"}},
		`subscription { executionEvents(executionId: 1) { ... on ExecutionFinished { cursor } } }`: {"executionEvents": map[string]any{}},
		`subscription($no: Boolean = false) { executionEvents(executionId: 1) { cursor @include(if: $no) ... on ExecutionOutput @skip(if: $no) { stream } } }`: {
			"executionEvents": map[string]any{"stream": "STDERR"}},
	} {
		if diff := cmp.Diff(want, encoded(t, query, map[string]any{"no": false}, output)); diff != "" {
			t.Errorf("%s: %s", query, diff)
		}
	}
}

// Encoders with the same result have the same selection; others don't.
func TestEncodersOfEqualSelectionsAreShared(t *testing.T) {
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
