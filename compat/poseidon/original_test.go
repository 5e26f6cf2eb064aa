package poseidon

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/test/wait"
)

// A running program isn't activity: the runner's inactivity timeout ends both.
func TestInactivityTimeoutEndsARunningProgram(t *testing.T) {
	b := newBed(t, Options{})
	b.expect(http.StatusCreated, http.MethodPut, "/execution-environments/1", put, "")
	for _, test := range []struct {
		inactivity, limit int
		gone              bool
	}{{1, 0, true}, {1, 600, true}, {600, 1, false}, {0, 1, false}} {
		var runner string
		var ws *websocket.Conn
		wait.For(t, "an idle runner, and a WebSocket before it is inactive", func() bool {
			body, _ := json.Marshal(map[string]int{"executionEnvironmentId": 1, "inactivityTimeout": test.inactivity})
			status, answer := b.call(http.MethodPost, "/runners", string(body))
			if status != http.StatusOK {
				return false
			}
			runner = "/runners/" + answer.(map[string]any)["runnerId"].(string)
			body, _ = json.Marshal(map[string]any{"command": "sleep 600", "timeLimit": test.limit})
			if status, answer = b.call(http.MethodPost, runner+"/execute", string(body)); status != http.StatusOK {
				return false
			}
			var err error
			ws, _, err = websocket.Dial(t.Context(), answer.(map[string]any)["websocketUrl"].(string), &websocket.DialOptions{HTTPHeader: http.Header{TokenHeader: {b.token}}})
			return err == nil
		})
		got, code := frames(t, ws)
		_ = ws.CloseNow()
		if !slices.Equal(got, []string{`{"type":"start"}`, `{"type":"timeout"}`}) || code != websocket.StatusNormalClosure {
			t.Errorf("%+v: %q, %d", test, got, code)
		}
		if !test.gone {
			b.expect(http.StatusNoContent, http.MethodPatch, runner+"/files", "{}", "")
			b.expect(http.StatusNoContent, http.MethodDelete, runner, "", "")
			continue
		}
		wait.For(t, "the runner is gone", func() bool {
			status, _ := b.call(http.MethodPatch, runner+"/files", "{}")
			return status == http.StatusGone
		})
	}
}

// An inactive program doesn't end the runner while another one runs there, or was just requested.
func TestInactiveProgramsSpareOthers(t *testing.T) {
	b := newBed(t, Options{})
	path := b.claim()
	id, ctx := runtime.RunnerID(strings.TrimPrefix(path, "/runners/")), access.With(t.Context(), access.Server())
	start := func(limit int) runtime.Execution {
		x, err := b.engine.Executions.Start(access.With(t.Context(), access.Server()), request.Start{RunnerID: id, Command: []string{"sleep", "600"}, TimeLimit: &limit})
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	idle, other := start(1), start(0)
	wait.For(t, "the inactive program has ended", func() bool {
		x, err := b.engine.Executions.Get(access.With(t.Context(), access.Server()), idle.ID, 0)
		return err == nil && x.State == runtime.ExecutionFinished
	})
	kept := func(want bool) {
		t.Helper()
		b.api.endInactive(ctx, idle)
		if r, found, _ := b.engine.Runners.Get(access.With(t.Context(), access.Server()), id); (found && r.State == runtime.RunnerClaimed) != want {
			t.Errorf("the runner: %v, %s; kept: %t", found, r.State, want)
		}
	}
	kept(true)
	if _, err := b.engine.Executions.Cancel(access.With(t.Context(), access.Server()), other.ID); err != nil {
		t.Fatal(err)
	}
	requested := b.execute(path, "true")
	kept(true)
	_, pending, _ := strings.Cut(requested, "executionID=")
	b.api.pending.take(id, pending)
	kept(false)
}

// The tar of Poseidon writes all files that it can, and fails.
func TestImpossibleFilesDoNotKeepOthersFromBeingWritten(t *testing.T) {
	b := newBed(t, Options{})
	runner := b.claim()
	b.expect(400, "PATCH", runner+"/files", `{"delete":["/"],"copy":[{"path":"before","content":""}]}`, "message")
	b.expect(424, "GET", runner+"/files/raw?path=before", "", "message")
	for name, bad := range map[string]string{"too long": strings.Repeat("n", 300), "no path": "", "the workspace": "/workspace"} {
		content := base64.StdEncoding.EncodeToString([]byte(name))
		body, _ := json.Marshal(map[string]any{"copy": []map[string]string{{"path": "before", "content": content}, {"path": bad, "content": ""}, {"path": "after", "content": content}}})
		if got := b.expect(500, "PATCH", runner+"/files", string(body), "errorCode"); got != "UNKNOWN" {
			t.Errorf("%s: got %s, want UNKNOWN", name, got)
		}
		for _, path := range []string{"before", "after"} {
			if status, got := b.call("GET", runner+"/files/raw?path="+path, ""); status != 200 || got != name {
				t.Errorf("%s: %s is answered with %d: %v", name, path, status, got)
			}
		}
	}
}

// A download has its path as its name.
func TestDownloadsHaveTheirPath(t *testing.T) {
	for path, want := range map[string]string{
		"a/b c.txt": `attachment; filename="a/b c.txt"`,
		"ü":         `attachment; filename*=utf-8''%C3%BC`,
		`a"b`:       `attachment; filename="a\"b"`,
		"a\r\nX: y": `attachment; filename*=utf-8''a%0D%0AX%3A%20y`,
		"\xff":      `attachment; filename*=utf-8''%EF%BF%BD`,
	} {
		if got := attachment(path); got != want {
			t.Errorf("%q: %s, want %s", path, got, want)
		}
	}
}
