package transport

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

func TestPresent(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	p := Presenter{Logger: zap.New(core)}
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
		{"with an offset", t.Context(), &runtime.Error{Code: runtime.CodeInvalidInput, Field: "offset", Offset: new(int64(7)), Message: "must be 0 to 7"},
			"must be 0 to 7", map[string]any{"code": "INVALID_INPUT", "retryable": false, "field": "offset", "offset": 7}},
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
			t.Errorf("%s: presented twice it is %v, want %v", test.name, again, got)
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
