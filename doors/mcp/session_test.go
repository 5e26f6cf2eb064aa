package mcp

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rockpool/rockpool/graph/transport/peers"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/test/wait"
)

// TestSessionsEndWithTheMCPSession: however that ends, its runners are released.
func TestSessionsEndWithTheMCPSession(t *testing.T) {
	for what, end := range map[string]func(t *testing.T, b *bed, a *agent, token string){
		"deleted": func(t *testing.T, _ *bed, a *agent, _ string) {
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		},
		"token revoked": func(t *testing.T, b *bed, _ *agent, id string) {
			if _, err := b.book.RevokeToken(t.Context(), access.Server(), id, false); err != nil {
				t.Error(err)
			}
		},
		"idle":         func(_ *testing.T, b *bed, a *agent, _ string) { b.door.sessionOf(a).endIdle() },
		"server stops": func(_ *testing.T, b *bed, _ *agent, _ string) { b.stop() },
	} {
		t.Run(what, func(t *testing.T) {
			b := newBed(t, nil)
			token, id := b.token("physics")
			a := b.agent(token)
			a.call("open_session", object{"environment": "shell"}, &opened{})
			if b.held() != 1 {
				t.Fatalf("%d held", b.held())
			}
			s := b.door.sessionOf(a)
			end(t, b, a, id)
			<-s.released
			if what != "server stops" {
				b.freed()
			}
			wait.For(t, "the session is forgotten", func() bool { return b.door.sessionOf(a) == nil })
			if _, err := a.CallTool(t.Context(), &sdk.CallToolParams{Name: "list_environments"}); err == nil {
				t.Error("the MCP session answers")
			}
		})
	}
}

// TestEndOfASessionCancelsItsCalls: a call that runs doesn't keep an ended session.
func TestEndOfASessionCancelsItsCalls(t *testing.T) {
	b := newBed(t, nil)
	token, id := b.token(runtime.DefaultTenant)
	a := b.agent(token)
	ended := make(chan error, 1)
	go func() {
		params := &sdk.CallToolParams{Name: "run_program", Arguments: object{"environment": "shell", "shell": "count 1000000000 1000"}}
		params.SetProgressToken("p")
		_, err := a.CallTool(t.Context(), params)
		ended <- err
	}()
	for message := ""; !strings.Contains(message, "1\n"); {
		message = wait.Receive(t, a.progress, "live output")
	}
	if _, err := b.book.RevokeToken(t.Context(), access.Server(), id, false); err != nil {
		t.Fatal(err)
	}
	wait.Receive(t, ended, "the end of the call")
	b.freed()
}

func TestForeignSessionsAreUnknown(t *testing.T) {
	b := newBed(t, nil)
	mine, _ := b.token("physics")
	same, _ := b.token("physics")
	other, _ := b.token("chemistry")
	a := b.agent(mine)
	var session opened
	a.call("open_session", object{"environment": "shell"}, &session)
	for _, token := range []string{mine, same, other, firstToken} { // mine: another MCP session
		foreign := b.agent(token)
		for tool, arguments := range map[string]object{
			"execute": {"shell": "true"}, "write_files": {"delete": []string{"./*"}}, "read_file": {"path": "a"}, "list_files": {},
		} {
			arguments["session"] = session.Session
			foreign.refused(tool, arguments, runtime.CodeRunnerGone, "")
		}
		var end closed
		if foreign.call("close_session", object{"session": session.Session}, &end); end.Closed {
			t.Error("another one closed it")
		}
	}
	for _, token := range []string{same, other, firstToken} { // with the id of my MCP session
		for _, method := range []string{http.MethodPost, http.MethodDelete} {
			if status, _ := b.send(method, token, a.ID(), `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); status != http.StatusNotFound {
				t.Errorf("%s answers %d", method, status)
			}
		}
	}
	a.call("execute", object{"session": session.Session, "shell": "true"}, &ran{})
}

// send sends a request, and returns the status and the body of its answer.
func (b *bed) send(method, token, session, body string) (status int, text string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if session != "" {
		r.Header.Set(sessionHeader, session)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

func TestBadRequests(t *testing.T) {
	b := newBed(t, nil)
	for _, test := range []struct {
		method, token, session, body string
		status                       int
	}{
		{http.MethodPost, "", "", initialize, http.StatusUnauthorized},
		{http.MethodPost, "wrong", "", initialize, http.StatusUnauthorized},
		{http.MethodGet, firstToken, "", "", http.StatusMethodNotAllowed},
		{http.MethodPost, firstToken, "nope", initialize, http.StatusNotFound},
		{http.MethodDelete, firstToken, "nope", "", http.StatusNotFound},
		{http.MethodPost, firstToken, "", "{", http.StatusBadRequest},
		{http.MethodPost, firstToken, "", "", http.StatusBadRequest},
		{http.MethodPost, firstToken, "", strings.Repeat(" ", 1<<20) + initialize, http.StatusRequestEntityTooLarge},
		{http.MethodPost, firstToken, "", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, http.StatusOK}, // with an error
	} {
		if status, text := b.send(test.method, test.token, test.session, test.body); status != test.status {
			t.Errorf("%+v: %d %s", test.method, status, text)
		}
	}
	wait.For(t, "no session is left", func() bool { return b.door.count() == 0 })
}

// TestSessionsAreBounded: a client that crashes again and again shuts out neither others nor itself.
func TestSessionsAreBounded(t *testing.T) {
	b := newBed(t, func(d *Door) { d.perToken, d.most = 2, 3 })
	mine, _ := b.token(runtime.DefaultTenant)
	other, _ := b.token("physics")
	third, _ := b.token("chemistry")
	first, second := b.agent(mine), b.agent(mine)
	wait.For(t, "the second one is idle", func() bool { return b.door.sessionOf(second).requests() == 0 })
	first.call("list_environments", object{}, &environments{}) // used last
	b.agent(mine)
	if b.door.sessionOf(second) != nil || b.door.sessionOf(first) == nil {
		t.Error("not the one that is idle for the longest time has ended")
	}
	b.agent(other)
	if _, err := b.connect(third); err == nil {
		t.Error("there are more than three")
	}
	if status, text := b.send(http.MethodPost, third, "", initialize); status != http.StatusTooManyRequests || !strings.Contains(text, "at most 2 of one token, 3 in all") {
		t.Errorf("%d %s", status, text)
	}
}

// TestCallsAreBoundedAsTheAPIs: what calls take counts as one token's, with its other requests.
func TestCallsAreBoundedAsTheAPIs(t *testing.T) {
	b := newBed(t, nil)
	a := b.agent(firstToken)
	var session opened
	a.call("open_session", object{"environment": "shell"}, &session)
	wait.For(t, "the first requests have ended", func() bool { return b.door.sessionOf(a).requests() == 0 })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var calls sync.WaitGroup
	for range maxOperations {
		calls.Go(func() {
			_, _ = a.CallTool(ctx, &sdk.CallToolParams{Name: "execute", Arguments: object{"session": session.Session, "shell": "count 1000000000 1000"}})
		})
	}
	wait.For(t, "all calls run", func() bool { return b.door.sessionOf(a).requests() == maxOperations })
	if status, text := b.send(http.MethodPost, firstToken, a.ID(), `{"jsonrpc":"2.0","id":99,"method":"tools/list"}`); status != http.StatusTooManyRequests {
		t.Errorf("%d %s", status, text)
	}
	other, otherID := b.token("physics")
	b.agent(other)
	if status, text := b.send(http.MethodDelete, firstToken, a.ID(), ""); status != http.StatusNoContent {
		t.Errorf("%d %s", status, text)
	}
	calls.Wait()
	large := `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 900<<10) + `"}`
	if status, _ := b.send(http.MethodPost, other, "", large); status != http.StatusBadRequest { // an unknown method
		t.Error(status)
	}
	held := b.peers.Hold(t.Context(), peers.Shown{Token: otherID})
	defer held.Release()
	if err := held.Grow(maxHeld / 2); err != nil { // another request's
		t.Fatal(err)
	}
	if status, _ := b.send(http.MethodPost, other, "", large); status != http.StatusTooManyRequests {
		t.Error(status)
	}
}

func TestIdleSessionsEnd(t *testing.T) {
	b := newBed(t, func(d *Door) { d.idle = time.Millisecond })
	b.send(http.MethodPost, firstToken, "", initialize)
	wait.For(t, "the session ends", func() bool { return b.door.count() == 0 })
}

func (d *Door) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.sessions)
}

func (s *session) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy
}

func (d *Door) sessionOf(a *agent) *session {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sessions[a.ID()]
}
