package bridge

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/rockpool/rockpool/test/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An mcpServer is a fake server with an MCP endpoint.
type mcpServer struct {
	mu      sync.Mutex
	opened  int    // sessions
	session string // that it knows
	seen    []string
	deleted chan string
	serve   http.HandlerFunc // instead; nil means an MCP server
}

func (d *mcpServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if d.serve != nil {
		d.serve(w, r)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	session := r.Header.Get("Mcp-Session-Id")
	if r.Method == http.MethodDelete {
		d.deleted <- session
		return
	}
	body, _ := io.ReadAll(r.Body)
	m := parse(body)
	d.seen = append(d.seen, m.Method+" "+session+" "+r.Header.Get("Mcp-Protocol-Version"))
	switch {
	case m.Method == "initialize":
		d.opened++
		d.session = fmt.Sprintf("s%d", d.opened)
		w.Header().Set("Mcp-Session-Id", d.session)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18"}}`, m.ID)
	case session != d.session:
		w.WriteHeader(http.StatusNotFound)
	case len(m.ID) == 0:
		w.WriteHeader(http.StatusAccepted)
	default:
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n: comment\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", m.ID)
	}
}

func (d *mcpServer) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.session = ""
}

// A client is a fake MCP client of the bridge.
type client struct {
	t     *testing.T
	in    *io.PipeWriter
	lines chan string
	ended chan error
	stop  func()
}

func newClient(t *testing.T, d *mcpServer) *client {
	d.deleted = make(chan string, 1)
	server := httptest.NewServer(d)
	in, write := io.Pipe()
	read, out := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	c := &client{t: t, in: write, lines: make(chan string, 10), ended: make(chan error, 1), stop: stop}
	send := func(ctx context.Context, method string, header http.Header, body io.Reader) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, method, server.URL, body)
		if err != nil {
			return nil, err
		}
		r.Header = header
		return server.Client().Do(r)
	}
	go func() {
		c.ended <- New(send, out).Run(ctx, in)
		_ = in.Close()
		_ = out.Close()
	}()
	go func() {
		for scanner := bufio.NewScanner(read); scanner.Scan(); {
			c.lines <- scanner.Text()
		}
		close(c.lines)
	}()
	t.Cleanup(func() { stop(); _ = write.Close(); server.Close() })
	return c
}

func (c *client) says(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) sees(wants ...string) {
	c.t.Helper()
	for _, want := range wants {
		if line := wait.Receive(c.t, c.lines, want); !strings.Contains(line, want) {
			c.t.Errorf("%s, not %s", line, want)
		}
	}
}

func TestMessagesPassInOrder(t *testing.T) {
	d := &mcpServer{}
	c := newClient(t, d)
	c.says(`{"jsonrpc":"2.0","id":1,"method":"initialize"}`)
	c.says(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	c.says("")
	c.says(`{"jsonrpc":"2.0","id":"x","method":"tools/call"}`)
	c.sees(`"id":1`, "progress", `"id":"x"`)
	_ = c.in.Close()
	if err := wait.Receive(t, c.ended, "the bridge's end"); err != nil {
		t.Error(err)
	}
	if session := wait.Receive(t, d.deleted, "the session's end"); session != "s1" {
		t.Error(session)
	}
	if got := strings.Join(d.seen, ", "); got != "initialize  , notifications/initialized s1 2025-06-18, tools/call s1 2025-06-18" {
		t.Error(got)
	}
}

// TestForgottenSessionIsReopened checks that the client doesn't notice a restart of the server.
func TestForgottenSessionIsReopened(t *testing.T) {
	d := &mcpServer{}
	c := newClient(t, d)
	c.says(`{"jsonrpc":"2.0","id":1,"method":"initialize"}`)
	c.sees(`"id":1`)
	d.forget()
	c.says(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	c.sees("progress", `"id":2`)
	if d.opened != 2 || d.seen[len(d.seen)-1] != "tools/list s2 2025-06-18" {
		t.Errorf("%d, %q", d.opened, d.seen)
	}
}

func TestHTTPErrorsAreErrorsOfTheCall(t *testing.T) {
	for want, serve := range map[string]http.HandlerFunc{
		"rockpool serve --compat mcp": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) },
		"MCP endpoint":                http.NotFound,
		"token":                       func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusUnauthorized) },
		"429 Too Many Requests": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "too many sessions", http.StatusTooManyRequests)
		},
		`"code":"FORBIDDEN"`: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"errors":[{"extensions":{"code":"FORBIDDEN"}}]}`)
		},
		"EOF": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		c := newClient(t, &mcpServer{serve: serve})
		c.says(`{"jsonrpc":"2.0","id":7,"method":"initialize"}`)
		c.says(`{"jsonrpc":"2.0","method":"notifications/initialized"}`) // no answer
		line := wait.Receive(t, c.lines, want)
		var got struct {
			ID    int
			Error struct{ Message string }
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil || got.ID != 7 || !strings.Contains(got.Error.Message, want) {
			t.Errorf("got %s, want %s", line, want)
		}
		c.stop()
		if err := wait.Receive(t, c.ended, "the bridge's end"); err != nil {
			t.Error(err)
		}
	}
}

// TestErrorsOfTheServerReachTheClient: clients negotiate the protocol version by them.
func TestErrorsOfTheServerReachTheClient(t *testing.T) {
	c := newClient(t, &mcpServer{serve: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":7,"error":{"code":-32022,"message":"unsupported"}}`)
	}})
	c.says(`{"jsonrpc":"2.0","id":7,"method":"server/discover"}`)
	c.sees(`"code":-32022`)
}

// TestClosingStdinEndsCalls checks that a running call keeps neither the bridge nor the session open.
func TestClosingStdinEndsCalls(t *testing.T) {
	d := &mcpServer{}
	began, gone := make(chan struct{}), make(chan struct{})
	d.serve = func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		close(began)
		<-r.Context().Done()
		close(gone)
	}
	c := newClient(t, d)
	c.says(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`)
	wait.Receive(t, began, "the call")
	_ = c.in.Close()
	wait.Receive(t, gone, "the call's end")
	if err := wait.Receive(t, c.ended, "the bridge's end"); err != nil {
		t.Error(err)
	}
}

// TestResponsesWithoutAResultAreErrors: a stopping server ends its responses cleanly, but without a result.
func TestResponsesWithoutAResultAreErrors(t *testing.T) {
	c := newClient(t, &mcpServer{serve: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n")
	}})
	c.says(`{"jsonrpc":"2.0","id":7,"method":"tools/call"}`)
	c.sees("progress", "ended the response before the result")
}

// TestErrorsWithoutAnIDGetTheCallsID: otherwise the client would wait forever.
func TestErrorsWithoutAnIDGetTheCallsID(t *testing.T) {
	c := newClient(t, &mcpServer{serve: func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}`)
	}})
	c.says(`{"jsonrpc":"2.0","id":7,"method":"tools/call"}`)
	c.sees(`"id":7`)
}

// TestConcurrentCallsOpenOneSession also checks that none of them fails.
func TestConcurrentCallsOpenOneSession(t *testing.T) {
	d := &mcpServer{}
	c := newClient(t, d)
	c.says(`{"jsonrpc":"2.0","id":1,"method":"initialize"}`)
	c.sees(`"id":1`)
	d.forget()
	const calls = 8
	for i := range calls {
		c.says(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, 10+i))
	}
	for range 2 * calls {
		if line := wait.Receive(t, c.lines, "an answer"); strings.Contains(line, "error") {
			t.Error(line)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.opened != 2 {
		t.Errorf("%d sessions, want 2", d.opened)
	}
}

// TestCallsWaitForTheClientsSession: a call whose session is forgotten doesn't open one while the
// client does.
func TestCallsWaitForTheClientsSession(t *testing.T) {
	d := &mcpServer{}
	called, forgotten := make(chan struct{}), make(chan struct{})
	opens, opened := make(chan struct{}, 2), make(chan struct{})
	d.serve = func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		session := r.Header.Get("Mcp-Session-Id")
		switch m := parse(body); {
		case m.Method == "initialize" && string(m.ID) == "1":
			w.Header().Set("Mcp-Session-Id", "s1")
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18"}}`)
		case m.Method == "initialize":
			opens <- struct{}{}
			<-opened
			w.Header().Set("Mcp-Session-Id", "s2")
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":3,"result":{"protocolVersion":"2025-06-18"}}`)
		case session == "s1" && len(m.ID) > 0:
			close(called)
			<-forgotten
			w.WriteHeader(http.StatusNotFound)
		case len(m.ID) > 0:
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"session":%q}}`, m.ID, session)
		}
	}
	c := newClient(t, d)
	c.says(`{"jsonrpc":"2.0","id":1,"method":"initialize"}`)
	c.sees(`"id":1`)
	c.says(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	wait.Receive(t, called, "the call")
	c.says(`{"jsonrpc":"2.0","id":3,"method":"initialize"}`)
	wait.Receive(t, opens, "the client's session")
	close(forgotten)
	wait.For(t, "the call waits for the session", func() bool { return len(opens) > 0 || waitsToReopen() })
	close(opened)
	c.sees(`"id":3`, `"session":"s2"`)
	if len(opens) != 0 {
		t.Error("two sessions were opened")
	}
}

// waitsToReopen reports whether a call waits for the right to open a session.
func waitsToReopen() bool {
	stacks := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, "[sync.Mutex.Lock") && strings.Contains(stack, "(*Bridge).reopen(") {
			return true
		}
	}
	return false
}

// TestCancellationsFollowTheirCalls: the server ignores a cancellation that arrives before its call.
func TestCancellationsFollowTheirCalls(t *testing.T) {
	seen := make(chan string, 2)
	c := newClient(t, &mcpServer{serve: func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if m := parse(body); len(m.ID) == 0 {
			seen <- m.Method
			return
		}
		seen <- "call"
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n")
	}})
	c.says(`{"jsonrpc":"2.0","id":7,"method":"tools/call"}`)
	c.says(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
	for _, want := range []string{"call", "notifications/cancelled"} {
		if got := wait.Receive(t, seen, want); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	c.sees(`"id":7`)
}

// TestInvalidLinesAreRefused: without an error the client would wait forever. The server gets none
// of the lines.
func TestInvalidLinesAreRefused(t *testing.T) {
	d := &mcpServer{}
	c := newClient(t, d)
	for line, wants := range map[string][]string{
		`{"id":1,`: {`"code":-32700,`, `"id":null`},
		`3`:        {`"code":-32600,`, `"id":null`},
		`{}`:       {`"code":-32600,`, `"id":null`},
		`[]`:       {`"code":-32600,`, `"id":null`},
		`[3]`:      {`"code":-32600,`, `"id":null`},
		`[{"jsonrpc":"2.0","id":7,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/initialized"}]`: {`"code":-32600,`, `"id":7`},
	} {
		c.says(line)
		got := wait.Receive(t, c.lines, line)
		for _, want := range wants {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %s, not %s", line, got, want)
			}
		}
	}
	c.says(`[{"jsonrpc":"2.0","id":8,"method":"ping"},{"jsonrpc":"2.0","id":"9","method":"ping"}]`)
	c.sees(`"id":8`, `"id":"9"`)
	if d.mu.Lock(); len(d.seen) != 0 {
		t.Errorf("the server has got %q", d.seen)
	}
	d.mu.Unlock()
}

// TestIDsAreComparedByValue: servers may spell an id differently from clients.
func TestIDsAreComparedByValue(t *testing.T) {
	for id, same := range map[string]string{`"a<b"`: `"a\u003cb"`, `1.0`: `1`, `"\u0061"`: `"a"`} {
		c := newClient(t, &mcpServer{serve: func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{}}`, same)
		}})
		c.says(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/list"}`)
		c.sees(`"result"`)
		_ = c.in.Close()
		if err := wait.Receive(t, c.ended, "the bridge's end"); err != nil {
			t.Error(err)
		}
		if more := wait.Receive(t, c.lines, "the end of the lines"); more != "" {
			t.Errorf("%s has another answer: %s, want \"\"", id, more)
		}
	}
	if key([]byte(`1`)) == key([]byte(`"1"`)) {
		t.Error("a number is a text")
	}
}

// TestNotificationsDontBlockCalls: the server doesn't respond to some of them.
func TestNotificationsDontBlockCalls(t *testing.T) {
	held := make(chan struct{})
	c := newClient(t, &mcpServer{serve: func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if m := parse(body); m.Method == "notifications/roots/list_changed" {
			<-held
		} else {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
		}
	}})
	defer close(held)
	c.says(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
	c.says(`{"jsonrpc":"2.0","id":7,"method":"tools/list"}`)
	c.sees(`"id":7`)
}

// TestAnotherInitializeEndsTheSession: otherwise its runners would wait for their timeouts.
func TestAnotherInitializeEndsTheSession(t *testing.T) {
	d := &mcpServer{}
	c := newClient(t, d)
	c.says(`{"jsonrpc":"2.0","id":1,"method":"initialize"}`)
	c.says(`{"jsonrpc":"2.0","id":2,"method":"initialize"}`)
	c.sees(`"id":1`, `"id":2`)
	if session := wait.Receive(t, d.deleted, "the first session's end"); session != "s1" {
		t.Error(session)
	}
	_ = c.in.Close()
	if session := wait.Receive(t, d.deleted, "the second session's end"); session != "s2" {
		t.Error(session)
	}
}
