package poseidon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/test/wait"
)

// reads returns a WebSocket's next frame.
func reads(t testing.TB, ws *websocket.Conn) string {
	t.Helper()
	_, data, err := ws.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// limit sets the quotas of a tenant.
func (b bed) limit(tenant runtime.TenantID, quotas runtime.Quotas) {
	b.t.Helper()
	if _, _, err := b.registry.PutTenant(b.t.Context(), tenant, nil, &quotas); err != nil {
		b.t.Fatal(err)
	}
}

// The WebSocket reports the reason, and closes as after an execution.
func TestRefusedExecutionIsReported(t *testing.T) {
	b := newBed(t, Options{}).as("one", access.Operator)
	b.limit("one", runtime.Quotas{Executions: new(1)})
	runner := b.claim()
	first := b.open(b.execute(runner, "cat"))
	if got := reads(t, first); got != `{"type":"start"}` {
		t.Fatalf("the first begins with %s", got)
	}
	got, code := frames(t, b.open(b.execute(runner, "cat")))
	if len(got) != 1 || !strings.HasPrefix(got[0], `{"type":"error","data":"tenant one has 1 of at most 1 unfinished executions`) || code != websocket.StatusNormalClosure {
		t.Errorf("the second gets %q, and %d", got, code)
	}
	if x, err := b.engine.Executions.Get(access.With(t.Context(), access.Server()), b.execution(), 0); err != nil || x.State != runtime.ExecutionRunning {
		t.Errorf("the first is %+v, %v", x, err)
	}
}

func TestLostRunnerIsReported(t *testing.T) {
	b := newBed(t, Options{})
	runner := b.claim()
	ws := b.open(b.execute(runner, "cat"))
	if got := reads(t, ws); got != `{"type":"start"}` {
		t.Fatalf("it begins with %s", got)
	}
	b.fake.Kill(runtime.RunnerID(strings.TrimPrefix(runner, "/runners/")), runtime.GoneEvicted)
	got, code := frames(t, ws)
	if len(got) != 1 || !strings.HasPrefix(got[0], `{"type":"error","data":"`) || code != websocket.StatusNormalClosure {
		t.Errorf("it gets %q, and %d", got, code)
	}
}

// A WebSocket counts as a subscription of its tenant.
func TestSubscriptions(t *testing.T) {
	b := newBed(t, Options{}).as("one", access.Operator)
	b.limit("one", runtime.Quotas{Subscriptions: new(1)})
	runner := b.claim()
	first, second := b.execute(runner, "cat"), b.execute(runner, "true")
	ws := b.open(first)
	header := http.Header{TokenHeader: {b.token}}
	_, response, err := websocket.Dial(t.Context(), second, &websocket.DialOptions{HTTPHeader: header})
	if err == nil || response.StatusCode != 500 {
		t.Fatalf("the second is answered with %v, %v", response, err)
	}
	_ = ws.CloseNow()
	wait.For(t, "room for the second, which still waits", func() bool {
		ws, _, err := websocket.Dial(t.Context(), second, &websocket.DialOptions{HTTPHeader: header})
		if err != nil {
			return false
		}
		got, _ := frames(t, ws)
		return slices.Equal(got, []string{`{"type":"start"}`, `{"type":"exit","data":0}`})
	})
}

// A request counts as an operation of its token. A runner can be released even at the limit.
func TestOperations(t *testing.T) {
	b := newBounded(t, Options{}, clients.Bounds{TokenOperations: 1}).as("one", access.Operator)
	runner := b.claim()
	wait.For(t, "no request is left", func() bool { return b.peers.Usage().Operations == 0 })
	other := b.peers.Reserve(t.Context(), clients.Credential{Token: b.tokenID})
	if err := other.Operate(); err != nil {
		t.Fatal(err)
	}
	if got := b.expect(500, "POST", runner+"/execute", `{"command":"true"}`, "errorCode"); got != "NOMAD_OVERLOAD" {
		t.Error(got)
	}
	if got := b.expect(500, "GET", "/health", "", "errorCode"); got != "NOMAD_OVERLOAD" {
		t.Error(got)
	}
	b.expect(204, "DELETE", runner, "", "")
	other.Release()
	b.expect(410, "POST", runner+"/execute", `{"command":"true"}`, "message")
}

// A WebSocket also counts as a subscription of its address and its token.
func TestSubscriptionsOfAnAddressAndAToken(t *testing.T) {
	for name, test := range map[string]struct {
		bounds  clients.Bounds
		message string
		other   bool // another token has room
	}{
		"address": {clients.Bounds{Subscriptions: 1}, "--peer-subscriptions", false},
		"token":   {clients.Bounds{TokenSubscriptions: 1}, "--token-subscriptions", true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBounded(t, Options{}, test.bounds).as("one", access.Operator)
			runner := b.claim()
			first, second, third := b.execute(runner, "cat"), b.execute(runner, "true"), b.execute(runner, "true")
			ws := b.open(first)
			dial := func(url, token string) (*websocket.Conn, error) {
				ws, response, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPHeader: http.Header{TokenHeader: {token}}})
				if err == nil {
					t.Cleanup(func() { _ = ws.CloseNow() })
					return ws, nil
				}
				text, _ := io.ReadAll(response.Body)
				return nil, fmt.Errorf("%d %s", response.StatusCode, text)
			}
			if _, err := dial(second, b.token); err == nil || !strings.HasPrefix(err.Error(), "500 ") || !strings.Contains(err.Error(), test.message) || !strings.Contains(err.Error(), `"errorCode":"NOMAD_OVERLOAD"`) {
				t.Fatalf("the second: got %v, want 500 with NOMAD_OVERLOAD and %s", err, test.message)
			}
			another, err := dial(third, b.as("one", access.Client).token)
			if (err == nil) != test.other {
				t.Errorf("that of another token is answered with %v", err)
			}
			if err == nil {
				_, _ = frames(t, another)
			}
			_ = ws.CloseNow()
			wait.For(t, "room for the second, which still waits", func() bool {
				ws, err := dial(second, b.token)
				if err != nil {
					return false
				}
				got, _ := frames(t, ws)
				return slices.Equal(got, []string{`{"type":"start"}`, `{"type":"exit","data":0}`})
			})
			wait.For(t, "no subscription is left", func() bool { return b.peers.Usage().Subscriptions == 0 })
		})
	}
}

func TestFailedHandshakeUsesUpNothing(t *testing.T) {
	b := newBed(t, Options{})
	url := b.execute(b.claim(), "true")
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http"+strings.TrimPrefix(url, "ws"), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{TokenHeader: {b.token}, "Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"12"}}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != 400 {
		t.Errorf("it is answered with %s", response.Status)
	}
	if got, _ := frames(t, b.open(url)); !slices.Equal(got, []string{`{"type":"start"}`, `{"type":"exit","data":0}`}) {
		t.Errorf("then it gets %q", got)
	}
}

// A client that sends too much stdin gets the reason for its program's end.
func TestTooMuchUnreadStdinIsReported(t *testing.T) {
	for name, test := range map[string]struct {
		bounds  clients.Bounds
		message string
	}{
		"of one program": {clients.Bounds{TokenBodies: 1 << 30}, "4 MiB"},
		"of one token":   {clients.Bounds{TokenBodies: 1 << 20}, "--body-memory"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBounded(t, Options{}, test.bounds).as("one", access.Operator)
			b.api.inputStall = time.Millisecond
			ws := b.open(b.execute(b.claim(), "sleep 1000"))
			if got := reads(t, ws); got != `{"type":"start"}` {
				t.Fatalf("it begins with %s", got)
			}
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				for ws.Write(t.Context(), websocket.MessageText, make([]byte, 300<<10)) == nil { // until it is closed
				}
			}()
			got, code := frames(t, ws)
			<-sent
			if len(got) != 1 || !strings.HasPrefix(got[0], `{"type":"error","data":"`) || !strings.Contains(got[0], test.message) || code != websocket.StatusNormalClosure {
				t.Errorf("got %q, and %d, want an error with %q", got, code, test.message)
			}
			if x, err := b.engine.Executions.Get(access.With(t.Context(), access.Server()), b.execution(), wait.Limit); err != nil || x.End.Signal != "SIGQUIT" {
				t.Errorf("it is %+v, %v", x, err)
			}
			wait.For(t, "no memory is held", func() bool { return b.peers.Usage().BodyBytes == 0 })
		})
	}
}

// Buffered stdin counts for the caller, and doesn't hide that the client closed the WebSocket.
func TestClosedWebSocketWithUnreadStdin(t *testing.T) {
	for name, leave := range map[string]func(net.Conn){
		"closed, but not its connection": func(conn net.Conn) { _, _ = conn.Write([]byte{0x88, 0x80, 0, 0, 0, 0}) },
		"cut":                            func(conn net.Conn) { _ = conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBounded(t, Options{}, clients.Bounds{TokenBodies: 1 << 30})
			b.api.keepalive = wait.Limit
			url := b.execute(b.claim(), "sleep 1000")
			var conn net.Conn
			ws, _, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPHeader: http.Header{TokenHeader: {b.token}}, HTTPClient: &http.Client{Transport: &http.Transport{
				DialContext: func(ctx context.Context, network, address string) (_ net.Conn, err error) {
					conn, err = new(net.Dialer).DialContext(ctx, network, address)
					return conn, err
				},
			}}})
			if err != nil {
				t.Fatal(err)
			}
			defer ws.CloseNow()
			if got := reads(t, ws); got != `{"type":"start"}` {
				t.Fatalf("it begins with %s", got)
			}
			ctx, cancel := context.WithTimeout(ws.CloseRead(t.Context()), wait.Limit)
			defer cancel()
			for b.peers.Usage().BodyBytes < 1<<20 { // more than is on its way to the program
				err := ws.Write(ctx, websocket.MessageText, make([]byte, 60<<10))
				if err == nil {
					err = ws.Ping(ctx) // which is answered once all was read
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			leave(conn)
			if x, err := b.engine.Executions.Get(access.With(t.Context(), access.Server()), b.execution(), wait.Limit); err != nil || x.End.Signal != "SIGQUIT" {
				t.Errorf("it is %+v, %v", x, err)
			}
			wait.For(t, "no memory is held", func() bool { return b.peers.Usage().BodyBytes == 0 })
		})
	}
}

// A grant couldn't end what it starts, so it can start nothing. No execution waits for it.
func TestGrantsCannotStartExecutions(t *testing.T) {
	b := newBed(t, Options{}).as("one", access.Operator)
	runner := b.claim()
	url := b.execute(runner, "cat")
	caller, err := b.registry.Authenticate(b.token)
	if err != nil {
		t.Fatal(err)
	}
	grant := access.Grant{
		Runner: runtime.RunnerID(strings.TrimPrefix(runner, "/runners/")),
		Rights: []access.Right{access.Watch, access.Stdin, access.Cancel, access.FilesRead, access.FilesWrite, access.Execute},
	}
	text, _, err := b.registry.Sign(caller.Principal, grant, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	granted := b
	granted.token = text
	granted.expect(http.StatusNoContent, "PATCH", runner+"/files", `{}`, "")
	granted.expect(http.StatusForbidden, "POST", runner+"/execute", `{"command":"cat"}`, "message")
	granted.expect(http.StatusForbidden, "GET", url[strings.Index(url, root)+len(root):], "", "message")
	if n := b.api.pending.count(); n != 1 {
		t.Errorf("%d executions wait, want 1", n)
	}
}

// serving opens a WebSocket that the server itself starts by start.
func (b bed) serving(start starter) *websocket.Conn {
	b.t.Helper()
	var ended sync.WaitGroup
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ended.Add(1)
		defer ended.Done()
		b.api.accept(w, r.WithContext(access.With(r.Context(), access.Server())), start)
	}))
	b.t.Cleanup(func() {
		server.Close()
		ended.Wait()
	})
	return b.open("ws" + strings.TrimPrefix(server.URL, "http"))
}

// An execution that can't be followed is ended, since no client would see it.
func TestExecutionWithoutFollowerEnds(t *testing.T) {
	b := newBed(t, Options{})
	id := runtime.RunnerID(strings.TrimPrefix(b.claim(), "/runners/"))
	got, code := frames(t, b.serving(func(context.Context) (runtime.Execution, error) {
		return runtime.Execution{ID: runtime.NewExecutionID(), RunnerID: id}, nil // which has no events
	}))
	if len(got) != 1 || !strings.HasPrefix(got[0], `{"type":"error","data":"`) || code != websocket.StatusNormalClosure {
		t.Errorf("it gets %q, and %d", got, code)
	}
	wait.For(t, "its runner to go", func() bool {
		r, there, _ := b.engine.Runners.Get(access.With(t.Context(), access.Server()), id)
		return !there || r.State == runtime.RunnerGone
	})
}

func TestInternalErrorsAreLogged(t *testing.T) {
	b := newBed(t, Options{})
	core, logged := observer.New(zap.ErrorLevel)
	b.api.Logger = zap.New(core)
	got, _ := frames(t, b.serving(func(context.Context) (runtime.Execution, error) {
		return runtime.Execution{}, errors.New("a secret")
	}))
	if !slices.Equal(got, []string{`{"type":"error","data":"internal error"}`}) {
		t.Errorf("it gets %q", got)
	}
	if all := logged.All(); len(all) != 1 || all[0].ContextMap()["error"] != "a secret" {
		t.Errorf("the log has %+v", all)
	}
}
