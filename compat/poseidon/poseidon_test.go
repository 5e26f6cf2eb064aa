package poseidon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/compat"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/test/wait"
)

func TestEnvironments(t *testing.T) {
	b := newBed(t, Options{LeastCPUMHz: 2000})
	for _, id := range []runtime.EnvironmentID{"python", "08", "1.5"} { // invisible to CodeOcean
		if _, _, err := b.engine.Environments.Put(access.With(t.Context(), access.Server()), request.Environment{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	b.expect(201, "PUT", "/execution-environments/007", put, "")
	want := map[string]any{"id": 7.0, "image": "host", "prewarmingPoolSize": 2.0, "cpuLimit": 2000.0, "memoryLimit": 64.0, "networkAccess": false, "exposedPorts": []any{}}
	if _, got := b.call("GET", "/execution-environments", ""); !reflect.DeepEqual(got, map[string]any{"executionEnvironments": []any{want}}) {
		t.Errorf("the list is %v", got)
	}
	// Settings of an operator stay. Boolean settings that CodeOcean leaves out are off.
	if _, _, err := b.engine.Environments.Put(access.With(t.Context(), access.Server()), request.Environment{ID: "7", Processes: new(99), NetworkAccess: new(true), ExposedPorts: []int{80}}); err != nil {
		t.Fatal(err)
	}
	b.expect(204, "PUT", "/execution-environments/7", `{"memoryLimit":4}`, "")
	env, _, _ := b.engine.Environments.Get(access.With(t.Context(), access.Server()), "7")
	if env.Resources.Processes != 99 || env.Resources.MemoryMiB != runtime.MinMemoryMiB || env.Image != "host" || env.Network.Used() {
		t.Errorf("it became %+v", env)
	}
	b.expect(204, "PUT", "/execution-environments/7", `{"cpuLimit":3000}`, "")
	if env, _, _ = b.engine.Environments.Get(access.With(t.Context(), access.Server()), "7"); env.Resources.CPUMHz != 3000 {
		t.Errorf("it has %d MHz, want 3000", env.Resources.CPUMHz)
	}
	for _, test := range []struct{ method, path, body, message string }{
		{"PUT", "/execution-environments/7", `{"memoryLimit":3}`, "memoryLimit: must be at least 4, not 3"},
		{"PUT", "/execution-environments/7", `{"cpuLimit":0}`, "cpuLimit: must be at least 1, not 0"},
		{"PUT", "/execution-environments/7", `{"prewarmingPoolSize":-1}`, "prewarmingPoolSize: must be 0 to 1000 runners, not -1"},
		{"PUT", "/execution-environments/7", `{"exposedPorts":[0]}`, "exposedPorts.0: must be 1 to 65535 (a port), not 0"},
		{"PUT", "/execution-environments/python", `{}`, "the id of an execution environment must be a number"},
		{"PUT", "/execution-environments/-1", `{}`, "the id of an execution environment must be a number"},
		{"GET", "/execution-environments/99999999999999999999", ``, "the id of an execution environment must be a number"},
		{"GET", "/execution-environments/7?fetch=perhaps", ``, "the parameter fetch must be true or false"},
	} {
		if got := b.expect(400, test.method, test.path, test.body, "message"); got != test.message {
			t.Errorf("%+v is answered with %q, want %q", test, got, test.message)
		}
	}
	if status, _ := b.call("POST", "/runners", `{"executionEnvironmentId":8}`); status != 404 {
		t.Errorf("a runner of an unknown environment is answered with %d, want 404", status)
	}
}

func TestIsolationOfNewEnvironments(t *testing.T) {
	b := newBed(t, Options{Isolation: runtime.IsolationCluster})
	b.expect(201, "PUT", "/execution-environments/1", put, "")
	if env, _, _ := b.engine.Environments.Get(access.With(t.Context(), access.Server()), "1"); env.Isolation != runtime.IsolationCluster || env.Resources.CPUMHz != 20 {
		t.Errorf("it is %+v", env)
	}
	if _, _, err := b.engine.Environments.Put(access.With(t.Context(), access.Server()), request.Environment{ID: "1", Isolation: new(runtime.IsolationGVisor)}); err != nil {
		t.Fatal(err)
	}
	b.expect(204, "PUT", "/execution-environments/1", put, "")
	if env, _, _ := b.engine.Environments.Get(access.With(t.Context(), access.Server()), "1"); env.Isolation != runtime.IsolationGVisor {
		t.Errorf("it became %s, want %s", env.Isolation, runtime.IsolationGVisor)
	}
}

func TestPoolsAreShownAndAlert(t *testing.T) {
	b := newBed(t, Options{})
	runner := b.claim()
	wait.For(t, "two idle runners", func() bool {
		_, got := b.call("GET", "/statistics/execution-environments", "")
		return reflect.DeepEqual(got, map[string]any{"1": map[string]any{"id": 1.0, "prewarmingPoolSize": 2.0, "idleRunners": 2.0, "usedRunners": 1.0}})
	})
	b.expect(204, "DELETE", runner, "", "")
	b.fake.OnStart(func(runtime.RunnerID) error { return errors.New("no room") })
	b.token = "" // none is needed
	b.expect(200, "GET", "/version", "", "")
	wait.For(t, "no alert", func() bool { status, _ := b.call("GET", "/health", ""); return status == 204 })
	b.token = token
	b.expect(204, "PUT", "/execution-environments/1", `{"memoryLimit":99}`, "") // replaces all
	if _, _, err := b.engine.Environments.Put(access.With(t.Context(), access.Server()), request.Environment{ID: "word", PoolSize: new(1)}); err != nil {
		t.Fatal(err)
	}
	other := b.as("other", access.Observer)
	wait.For(t, "the alert", func() bool {
		status, got := b.call("GET", "/health", "")
		return status == 503 && reflect.DeepEqual(got, map[string]any{"message": "the prewarming pool is depleting: environments 1", "errorCode": "PREWARMING_POOL_DEPLETING"})
	})
	for _, shown := range []string{"", "a token that isn't known"} { // nobody learns of other tenants' pools
		b.token = shown
		if status, got := b.call("GET", "/health", ""); status != 204 || got != nil {
			t.Errorf("a caller with %q is answered with %d: %v", shown, status, got)
		}
	}
	other.expect(204, "GET", "/health", "", "") // its own are well
	b.token = token
	if status, got := b.call("POST", "/runners", `{"executionEnvironmentId":1}`); status != 500 || got.(map[string]any)["errorCode"] != "NOMAD_OVERLOAD" {
		t.Errorf("without an idle runner a claim is answered with %d: %v", status, got)
	}
}

func TestTenantsAreIsolated(t *testing.T) {
	b := newBed(t, Options{})
	one, other := b.as("one", access.Operator), b.as("other", access.Operator)
	runner := one.claim()
	url := one.execute(runner, "true")
	for _, test := range []struct {
		status             int
		method, path, body string
	}{
		{404, "GET", "/execution-environments/1", ""},
		{409, "PUT", "/execution-environments/1", put},
		{404, "DELETE", "/execution-environments/1", ""},
		{404, "POST", "/runners", `{"executionEnvironmentId":1}`},
		{410, "DELETE", runner, ""},
		{410, "GET", runner + "/files", ""},
		{410, "GET", runner + "/files/raw?path=x", ""},
		{410, "PATCH", runner + "/files", "{}"},
		{410, "POST", runner + "/execute", `{"command":"true"}`},
		{410, "GET", url[strings.Index(url, root)+len(root):], ""},
	} {
		other.expect(test.status, test.method, test.path, test.body, "")
	}
	client := b.as("one", access.Client)
	client.expect(403, "PUT", "/execution-environments/1", put, "message")
	observer := b.as("one", access.Observer)
	observer.expect(403, "POST", "/runners", `{"executionEnvironmentId":1}`, "message")
	observer.expect(403, "GET", url[strings.Index(url, root)+len(root):], "", "message")
	for range pendingRunner {
		observer.expect(403, "POST", runner+"/execute", `{"command":"true"}`, "message") // it replaces nothing
	}
	if got, code := frames(t, client.open(url)); !slices.Equal(got, []string{`{"type":"start"}`, `{"type":"exit","data":0}`}) || code != websocket.StatusNormalClosure {
		t.Errorf("another token of the tenant gets %q, and %d", got, code)
	}
}

// Each Rockpool error has a form that CodeOcean understands.
func TestErrors(t *testing.T) {
	client, server := `{"message":"m"}`, func(code string) string { return fmt.Sprintf(`{"message":"m","errorCode":%q}`, code) }
	want := map[runtime.Code]struct {
		status int
		body   string
	}{
		runtime.CodeInvalidInput: {400, client}, runtime.CodeUnauthenticated: {401, ""}, runtime.CodeForbidden: {403, client},
		runtime.CodeEnvironmentNotFound: {404, client}, runtime.CodeExecutionNotFound: {404, client}, runtime.CodeConflict: {409, client},
		runtime.CodeRunnerGone: {410, client}, runtime.CodeFileError: {424, client},
		runtime.CodeNoRunnerAvailable: {500, server("NOMAD_OVERLOAD")}, runtime.CodeQuotaExceeded: {500, server("NOMAD_OVERLOAD")},
		runtime.CodeLimitExceeded: {500, server("UNKNOWN")}, runtime.CodeClusterUnavailable: {500, server("NOMAD_UNREACHABLE")},
		runtime.CodeStorageFull: {500, server("UNKNOWN")},
	}
	internal := `{"message":"internal error","errorCode":"UNKNOWN"}`
	a := &api{Services: compat.Services{Logger: zap.NewNop(), MaxBody: 1 << 10}}
	for _, code := range runtime.Codes() {
		w := httptest.NewRecorder()
		a.refuse(w, httptest.NewRequest("GET", "/", nil), fmt.Errorf("around: %w", runtime.Wrap(code, errors.New("a secret"), "m")))
		expected, known := want[code]
		if !known {
			expected.status, expected.body = 500, internal
		}
		if got := strings.TrimSpace(w.Body.String()); w.Code != expected.status || got != expected.body {
			t.Errorf("%s is answered with %d %s", code, w.Code, got)
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		w = httptest.NewRecorder()
		a.refuse(w, httptest.NewRequestWithContext(cancelled, "GET", "/", nil), runtime.Wrap(code, context.Canceled, "m"))
		if got := strings.TrimSpace(w.Body.String()); w.Code != 503 || got != `{"message":"the request was cancelled","errorCode":"UNKNOWN"}` {
			t.Errorf("%s of a cancelled request is answered with %d %s", code, w.Code, got)
		}
	}
}

func TestBodies(t *testing.T) {
	b := newBed(t, Options{})
	runner := b.claim()
	wait.For(t, "an idle runner", func() bool {
		pool, _ := b.engine.Environments.PoolStatus(runtime.Environment{ID: "1"})
		return pool.Idle > 0
	})
	for _, path := range []string{runner, "/runners/unknown"} {
		for _, body := range []string{"", "{", "[]", `"x"`, "{}x", "\xff", `{"copy":[{"path":"x","content":"%"}]}`, `{"delete":"x"}`} {
			if got := b.expect(400, "PATCH", path+"/files", body, "message"); got == "" {
				t.Errorf("%q has no message", body)
			}
		}
		for _, body := range []string{`{"x":[` + strings.Repeat("0,", 100_000) + `0]}`, strings.Repeat("[", 101)} {
			b.expect(413, "PATCH", path+"/files", body, "message")
		}
		b.refused(413, "PATCH", path+"/files", strings.Repeat(" ", 1<<20+1), "message")
	}
	all, err := b.engine.Runners.List(access.With(t.Context(), access.Server()), request.Runners{States: []runtime.RunnerState{runtime.RunnerIdle}})
	if err != nil {
		t.Fatal(err)
	}
	for _, idle := range all {
		b.expect(410, "POST", "/runners/"+string(idle.ID)+"/execute", `{"command":"true"}`, "message") // it isn't claimed
	}
	b.expect(410, "PATCH", "/runners/unknown/files", `{"copy":[{"path":"x","content":"`+strings.Repeat("AAAA", 200_000)+`"}]}`, "message")
	for _, body := range []string{`{"command":"x","timeLimit":-1}`, `{"command":"x","environment":{"a b":"c"}}`, `{"command":"a\u0000b"}`, `{"command":7}`} {
		b.expect(400, "POST", runner+"/execute", body, "message")
	}
	b.expect(200, "POST", runner+"/execute", `{"command":"x","environment":{"CODEOCEAN":"no"}}`, "websocketUrl") // it is ours
	for body, want := range map[string]string{
		`{"timeLimit":` + strings.Repeat("1", 900<<10) + `}`: "timeLimit can't be a JSON number " + strings.Repeat("1", 33),
		`{"command":{}}`: "command can't be a JSON object", "[]": "the body can't be a JSON array", "{": "unexpected end of JSON input",
	} {
		if got := b.expect(400, "POST", runner+"/execute", body, "message"); got != "the body isn't valid JSON for this request: "+want {
			t.Errorf("%.99s is answered with %.999q", body, got)
		}
	}
	long := strings.Repeat("x", 257)
	for range 20 { // the same one each time
		for body, want := range map[string]string{
			`{"A":"","B":"","2 bad":"","1 bad":"","C":""}`: `environment."1 bad": must be 1 to 256 letters`,
			`{"A":"","` + long + `":""}`:                   `environment."` + long[:64] + `": must be 1 to 256 letters`,
			`{"A":"","B":"\u0000"}`:                        `environment."B": must be at most`,
		} {
			if got := b.expect(400, "POST", runner+"/execute", `{"command":"x","environment":`+body+`}`, "message"); !strings.HasPrefix(got, want) {
				t.Fatalf("%s is answered with %q", body, got)
			}
		}
	}
}

// The memory of a body counts for its token. A body without memory is answered as an overload.
func TestBodiesTakeMemory(t *testing.T) {
	b := newBed(t, Options{}).as("physics", access.Client)
	patch := `{"copy":[{"path":"x","content":"` + strings.Repeat("AAAA", 100_000) + `"}]}`
	b.expect(410, "PATCH", "/runners/unknown/files", patch, "message")
	held := b.peers.Reserve(t.Context(), clients.Credential{Token: b.tokenID})
	defer held.Release()
	if err := held.Grow(maxHeld - 100_000); err != nil { // another request's
		t.Fatal(err)
	}
	if got := b.refused(500, "PATCH", "/runners/unknown/files", patch, "errorCode"); got != "NOMAD_OVERLOAD" {
		t.Error(got)
	}
}

// An impossible path is answered like a missing file, since CodeOcean would destroy the runner
// after a 400.
func TestImpossiblePathsAreMissingFiles(t *testing.T) {
	b := newBed(t, Options{})
	runner := b.claim()
	for _, path := range []string{strings.Repeat("n", 300), strings.Repeat("n/", 3000), "a%00b"} {
		for _, route := range []string{"/files", "/files/raw"} {
			b.expect(424, "GET", runner+route+"?path="+path, "", "message")
		}
	}
}

func TestWebSocketURL(t *testing.T) {
	b := newBed(t, Options{})
	runner := b.claim()
	if got, want := b.execute(runner, "true"), "ws"+strings.TrimPrefix(b.url, "http")+runner+"/websocket?executionID="; !strings.HasPrefix(got, want) {
		t.Errorf("it is %s, not %s…", got, want)
	}
	r := httptest.NewRequest("POST", "https://runners.example.org"+root+runner+"/execute", strings.NewReader(`{"command":"true"}`)) // it came by TLS
	r.Header.Set(TokenHeader, token)
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	if want := "wss://runners.example.org" + root + runner + "/websocket?executionID="; !strings.Contains(w.Body.String(), want) {
		t.Errorf("by TLS it is %s, not %s…", w.Body, want)
	}
}

// An id can be used by one WebSocket only, and only for its runner.
func TestExecutionStartsOnce(t *testing.T) {
	b := newBed(t, Options{})
	runner := b.claim()
	url := b.execute(runner, "echo <é> & more")
	path := url[strings.Index(url, root)+len(root):]
	b.expect(400, "GET", path, "", "message") // no WebSocket: it isn't used
	other := strings.Replace(url, runner, b.again(), 1)
	dial := func(url string) int {
		ws, response, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPHeader: http.Header{TokenHeader: {b.token}}})
		if err == nil {
			_ = ws.CloseNow()
		}
		return response.StatusCode
	}
	if got := dial(other); got != 404 {
		t.Errorf("another runner's is answered with %d, want 404", got)
	}
	if got, code := frames(t, b.open(url)); code != websocket.StatusNormalClosure ||
		!slices.Equal(got, []string{`{"type":"start"}`, `{"type":"stdout","data":"<é> & more\n"}`, `{"type":"exit","data":0}`}) {
		t.Errorf("%q, and %d", got, code)
	}
	if got := dial(url); got != 404 {
		t.Errorf("the second WebSocket is answered with %d, want 404", got)
	}
	gone := b.execute(runner, "true")
	b.expect(204, "DELETE", runner, "", "")
	if n := b.api.pending.count(); n != 0 {
		t.Errorf("%d executions of it still wait, want 0", n)
	}
	if got := dial(gone); got != 410 {
		t.Errorf("that of a released runner is answered with %d, want 410", got)
	}
}

func TestStdin(t *testing.T) {
	b := newBed(t, Options{})
	ws := b.open(b.execute(b.claim(), "cat"))
	var text strings.Builder
	for i := range 100 { // more than are buffered at a time
		if err := ws.Write(t.Context(), websocket.MessageText, fmt.Appendf(nil, "line %d ä\n", i)); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "line %d ä\n", i)
	}
	var got strings.Builder
	for got.Len() < text.Len() {
		_, data, err := ws.Read(t.Context())
		if err != nil {
			t.Fatalf("%v after %q", err, got.String())
		}
		var frame struct{ Type, Data string }
		if err := json.Unmarshal(data, &frame); err != nil {
			t.Fatal(err)
		}
		got.WriteString(frame.Data)
	}
	if got.String() != text.String() {
		t.Errorf("%q came back", got.String())
	}
}

// Each side answers the other's pings, and an idle client gets pings.
func TestPingsAreAnsweredAndSent(t *testing.T) {
	b := newBed(t, Options{})
	b.api.keepalive = time.Millisecond
	asked := make(chan struct{}, 1)
	ws, _, err := websocket.Dial(t.Context(), b.execute(b.claim(), "cat"), &websocket.DialOptions{
		HTTPHeader: http.Header{TokenHeader: {b.token}},
		OnPingReceived: func(context.Context, []byte) bool {
			select {
			case asked <- struct{}{}:
			default:
			}
			return true
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for err := error(nil); err == nil; {
			_, _, err = ws.Read(t.Context())
		}
	}()
	wait.Receive(t, asked, "the server's ping")
	wait.Receive(t, asked, "one more, after it was answered")
	if err := ws.Ping(t.Context()); err != nil {
		t.Errorf("a ping is answered with %v", err)
	}
	_ = ws.CloseNow()
	<-read
}

// The program gets SIGQUIT. An end-to-end test covers programs that ignore it.
func TestClosedWebSocketEndsItsExecution(t *testing.T) {
	for name, leave := range map[string]func(*websocket.Conn) error{
		"closed": func(ws *websocket.Conn) error { return ws.Close(websocket.StatusNormalClosure, "") },
		"cut":    (*websocket.Conn).CloseNow,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, Options{})
			runner := b.claim()
			ws := b.open(b.execute(runner, "cat"))
			if _, data, err := ws.Read(t.Context()); err != nil || string(data) != `{"type":"start"}` {
				t.Fatalf("%s, %v", data, err)
			}
			_ = leave(ws)
			x := b.execution()
			end, err := b.engine.Executions.Get(access.With(t.Context(), access.Server()), x, wait.Limit)
			if err != nil || end.End.Signal != "SIGQUIT" {
				t.Errorf("it is %+v, %v", end, err)
			}
		})
	}
}

func (b bed) execution() runtime.ExecutionID {
	b.t.Helper()
	page, err := b.engine.Executions.List(access.With(b.t.Context(), access.Server()), request.Executions{}, 1, "")
	if err != nil || len(page.Executions) != 1 {
		b.t.Fatalf("%+v, %v", page, err)
	}
	return page.Executions[0].ID
}

// The execution continues when the server stops or the token ends. A new server follows it.
func TestStoppingServerEndsNoExecution(t *testing.T) {
	for name, stop := range map[string]func(bed){
		"server": func(b bed) { b.stop() },
		"token": func(b bed) {
			if _, err := b.registry.RevokeToken(b.t.Context(), access.Server(), b.tokenID, false); err != nil {
				b.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, Options{}).as("one", access.Operator)
			ws := b.open(b.execute(b.claim(), "cat"))
			if _, _, err := ws.Read(t.Context()); err != nil {
				t.Fatal(err)
			}
			stop(b)
			if _, code := frames(t, ws); code != websocket.StatusGoingAway {
				t.Errorf("it is closed with %d, want %d", code, websocket.StatusGoingAway)
			}
			if x, err := b.engine.Executions.Get(access.With(t.Context(), access.Server()), b.execution(), 0); err != nil || x.State != runtime.ExecutionRunning {
				t.Errorf("it is %+v, %v", x, err)
			}
		})
	}
}

func TestFloodOfExecutions(t *testing.T) {
	b := newBed(t, Options{})
	runner := b.claim()
	var urls []string
	for range pendingRunner + 3 {
		urls = append(urls, b.execute(runner, "true"))
	}
	for i, url := range urls {
		ws, response, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPHeader: http.Header{TokenHeader: {b.token}}})
		if started := err == nil; started != (i >= 3) {
			t.Errorf("%d is answered with %s", i, response.Status)
		}
		if err == nil {
			_, _ = frames(t, ws)
		}
	}
	wait.For(t, "all to end", func() bool {
		page, err := b.engine.Executions.List(access.With(context.WithoutCancel(t.Context()), access.Server()), request.Executions{States: []runtime.ExecutionState{runtime.ExecutionFinished}}, 100, "")
		return err == nil && len(page.Executions) == pendingRunner
	})
}
