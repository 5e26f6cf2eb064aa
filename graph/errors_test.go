package graph

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rockpool/rockpool/runtime"
)

func TestErrorsOfTheDocumentNameTheField(t *testing.T) {
	url, logs := served(t, Options{})
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

// There is no engine here, so asking it panics: the client learns an id, the
// log learns the rest.
func TestPanicsBecomeInternalWithoutDetail(t *testing.T) {
	url, logs := served(t, Options{})
	got := ask(t, "POST", url, `{"query": "{ environments { id } }"}`, nil)
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

func TestPresent(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	p := presenter{logger: zap.New(core)}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	left, leave := context.WithCancelCause(t.Context())
	peerLeft := errors.New("the peer left")
	leave(peerLeft)
	secret := errors.New("token=sesame /var/lib/x")
	for _, test := range []struct {
		name    string
		ctx     context.Context
		err     error
		message string
		want    map[string]any
	}{
		{"typed", t.Context(), fmt.Errorf("claim: %w", runtime.Errorf(runtime.CodeNoRunnerAvailable, "none is idle")),
			"none is idle", map[string]any{"code": "NO_RUNNER_AVAILABLE", "retryable": true}},
		{"with a cause", t.Context(), runtime.Wrap(runtime.CodeFileError, secret, "no such file"),
			"no such file", map[string]any{"code": "FILE_ERROR", "retryable": false}},
		{"with a field", t.Context(), runtime.Invalid("poolSize", "must be less"),
			"must be less", map[string]any{"code": "INVALID_INPUT", "retryable": false, "field": "poolSize"}},
		{"cancelled", cancelled, fmt.Errorf("read: %w", context.Canceled),
			"the request was cancelled, or the server is stopping", map[string]any{"code": "CLUSTER_UNAVAILABLE", "retryable": true}},
		{"cancelled for a reason", left, fmt.Errorf("read: %w", peerLeft),
			"the request was cancelled, or the server is stopping", map[string]any{"code": "CLUSTER_UNAVAILABLE", "retryable": true}},
	} {
		got := p.Present(test.ctx, test.err)
		have, _ := json.Marshal(got.Extensions)
		want, _ := json.Marshal(test.want)
		if got.Message != test.message || string(have) != string(want) {
			t.Errorf("%s: %q %s", test.name, got.Message, have)
		}
		if again := p.Present(test.ctx, got); again != got {
			t.Errorf("%s: presented twice it is %v", test.name, again)
		}
	}
	if logs.Len() != 0 {
		t.Errorf("logged: %v", logs.All())
	}
	for _, err := range []error{secret, runtime.Wrap(runtime.CodeInternal, secret, "x")} {
		got := p.Present(t.Context(), err)
		if got.Extensions["code"] != runtime.CodeInternal || strings.Contains(got.Message, "sesame") || got.Extensions["id"] == "" {
			t.Errorf("%v: %q %v", err, got.Message, got.Extensions)
		}
	}
	if logs.Len() != 2 || !strings.Contains(fmt.Sprint(logs.All()[0].ContextMap()), "sesame") {
		t.Errorf("the log has %v", logs.All())
	}
}
