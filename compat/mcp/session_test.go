package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/test/wait"
)

// However the MCP session ends, its runners are released.
func TestSessionsEndWithTheMCPSession(t *testing.T) {
	for what, end := range map[string]func(t *testing.T, b *bed, a *agent, token string){
		"deleted": func(t *testing.T, _ *bed, a *agent, _ string) {
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		},
		"token revoked": func(t *testing.T, b *bed, _ *agent, id string) {
			if _, err := b.registry.RevokeToken(t.Context(), access.Server(), id, false); err != nil {
				t.Error(err)
			}
		},
		"idle": func(t *testing.T, b *bed, a *agent, _ string) {
			wait.For(t, "the last request has ended", b.api.sessionOf(a).endIdle)
		},
		"server stops": func(_ *testing.T, b *bed, _ *agent, _ string) { b.ends() },
	} {
		t.Run(what, func(t *testing.T) {
			b := newBed(t, nil)
			token, id := b.token("physics")
			a := b.agent(token)
			a.call("open_session", object{"environment": "shell"}, &openResult{})
			if b.held() != 1 {
				t.Fatalf("%d held, want 1", b.held())
			}
			s := b.api.sessionOf(a)
			end(t, b, a, id)
			<-s.released
			b.freed()
			wait.For(t, "the session is forgotten", func() bool { return b.api.sessionOf(a) == nil })
			if _, err := a.CallTool(t.Context(), &sdk.CallToolParams{Name: "list_environments"}); err == nil {
				t.Error("the MCP session answers")
			}
		})
	}
}

// A running call doesn't keep an ended session.
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
	if _, err := b.registry.RevokeToken(t.Context(), access.Server(), id, false); err != nil {
		t.Fatal(err)
	}
	wait.Receive(t, ended, "the end of the call")
	b.freed()
}

func TestSessionsOfOtherTokensAreUnknown(t *testing.T) {
	b := newBed(t, nil)
	mine, _ := b.token("physics")
	same, _ := b.token("physics")
	other, _ := b.token("chemistry")
	a := b.agent(mine)
	var session openResult
	a.call("open_session", object{"environment": "shell"}, &session)
	for _, token := range []string{mine, same, other, firstToken} { // mine: another MCP session
		foreign := b.agent(token)
		for tool, arguments := range map[string]object{
			"execute": {"shell": "true"}, "write_files": {"delete": []string{"./*"}}, "read_file": {"path": "a"}, "list_files": {},
		} {
			arguments["session"] = session.Session
			foreign.refused(tool, arguments, runtime.CodeRunnerGone, "")
		}
		var end closeResult
		if foreign.call("close_session", object{"session": session.Session}, &end); end.Closed {
			t.Error("another one closed it")
		}
	}
	for _, token := range []string{same, other, firstToken} { // with the id of my MCP session
		for _, method := range []string{http.MethodPost, http.MethodDelete} {
			if status, _ := b.send(method, token, a.ID(), `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); status != http.StatusNotFound {
				t.Errorf("%s answers %d, want %d", method, status, http.StatusNotFound)
			}
		}
	}
	a.call("execute", object{"session": session.Session, "shell": "true"}, &ran{})
}

// send serves a request, and returns the status and body of its answer. It uses no connection: the
// server would close that half a second after the answer to a body that isn't read completely, and
// the answer could be lost.
func (b *bed) send(method, token, session, body string) (status int, text string) {
	b.t.Helper()
	r := httptest.NewRequestWithContext(b.t.Context(), method, b.url, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if session != "" {
		r.Header.Set(sessionHeader, session)
	}
	w := httptest.NewRecorder()
	b.direct.ServeHTTP(w, r)
	return w.Code, w.Body.String()
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
		{http.MethodPost, firstToken, "", " \r\n\t[" + initialize + "]", http.StatusBadRequest},
		{http.MethodPost, firstToken, "", strings.Repeat(" ", 1<<20) + initialize, http.StatusRequestEntityTooLarge},
		{http.MethodPost, firstToken, "", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, http.StatusOK}, // with an error
		{http.MethodPost, firstToken, "", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"a":[` + strings.Repeat("0,", 100_000) + `0]}}}`, http.StatusBadRequest},
	} {
		if status, text := b.send(test.method, test.token, test.session, test.body); status != test.status {
			t.Errorf("%+v: %d %s", test.method, status, text)
		}
	}
	wait.For(t, "no session is left", func() bool { return b.api.count() == 0 })
}

// A client that crashes repeatedly locks out neither others nor itself.
func TestSessionsAreBounded(t *testing.T) {
	b := newBed(t, func(a *API) { a.perToken, a.most = 2, 3 })
	mine, _ := b.token(runtime.DefaultTenant)
	other, _ := b.token("physics")
	third, _ := b.token("chemistry")
	idle := func(a *agent) *agent {
		wait.For(t, "it is idle", func() bool { return b.api.sessionOf(a).requests() == 0 })
		return a
	}
	gone := func(a *agent) bool { return b.api.sessionOf(a) == nil }
	first, second := idle(b.agent(mine)), idle(b.agent(mine))
	idle(first).call("list_environments", object{}, &environments{}) // used last
	idle(first)
	again := b.agent(mine)
	if !gone(second) || gone(first) {
		t.Error("not the one that was idle longest has ended")
	}
	kept := idle(b.agent(other))
	if !b.api.sessionOf(first).begin() || !b.api.sessionOf(again).begin() || !b.api.sessionOf(kept).begin() {
		t.Fatal("one has ended")
	}
	if status, text := b.send(http.MethodPost, third, "", initialize); status != http.StatusTooManyRequests || !strings.Contains(text, "at most 2 of one token, 3 ") {
		t.Errorf("got %d %s, want 429 with the limits 2 and 3", status, text)
	}
	for _, a := range []*agent{kept, again, first} { // the other's is idle longest
		b.api.sessionOf(a).done()
		idle(a)
	}
	b.agent(third)
	if gone(kept) || !gone(again) || gone(first) {
		t.Error("not one of the token with the most sessions has ended")
	}
}

// A grant can't claim runners, and has no limits of its own.
func TestGrantsOpenNoSessions(t *testing.T) {
	b := newBed(t, nil)
	token, id := b.token(runtime.DefaultTenant)
	a := b.agent(token)
	var session openResult
	a.call("open_session", object{"environment": "shell"}, &session)
	by := access.Principal{Kind: access.KindToken, ID: id, Role: access.Client, Tenant: runtime.DefaultTenant}
	grant, _, err := b.registry.Sign(by, access.Grant{Runner: runtime.RunnerID(session.Session), Rights: []access.Right{access.Watch}}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"", a.ID()} {
		if status, text := b.send(http.MethodPost, grant, id, initialize); status != http.StatusForbidden {
			t.Errorf("%d %s", status, text)
		}
	}
	if status, text := b.send(http.MethodDelete, grant, a.ID(), ""); status != http.StatusNotFound {
		t.Errorf("%d %s", status, text)
	}
}

// Breaking connections doesn't give a client more calls than its limit allows, and its session
// isn't idle.
func TestCallsWhoseClientLeftAreCounted(t *testing.T) {
	b := newBed(t, nil)
	a := b.agent(firstToken)
	var session openResult
	a.call("open_session", object{"environment": "shell"}, &session)
	s := b.api.sessionOf(a)
	b.quiet()
	for i := range maxOperations {
		b.cut(a, fmt.Sprintf(`{"jsonrpc":"2.0","id":"cut-%d","method":"tools/call","params":{"name":"execute","arguments":{"session":%q,"shell":"count 1000000000 1000"},"_meta":{"progressToken":%d}}}`, i, session.Session, i))
		wait.For(t, "the request has ended", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.served) == 0 })
	}
	if status, text := b.send(http.MethodPost, firstToken, a.ID(), `{"jsonrpc":"2.0","id":99,"method":"tools/list"}`); status != http.StatusTooManyRequests {
		t.Errorf("%d %s", status, text)
	}
	if s.endIdle() {
		t.Error("a session with calls is idle")
	}
	if _, _, err := s.begins(&sdk.RequestExtra{Header: http.Header{requestKey: {"of one that has ended"}}}); !errors.Is(err, errLeft) {
		t.Errorf("a call begins whose client has left: got %v, want %v", err, errLeft)
	}
	s.end(errDeleted)
	<-s.released
	b.freed()
}

// quiet waits until the earlier requests no longer count, which is after their sessions have ended
// them.
func (b *bed) quiet() {
	b.t.Helper()
	wait.For(b.t, "the first requests have ended", func() bool { return b.peers.Usage().Operations == 0 })
}

// cut sends a message, and breaks the connection when a part of the answer has arrived.
func (b *bed) cut(a *agent, message string) {
	b.t.Helper()
	ctx, cut := context.WithCancel(b.t.Context())
	defer cut()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, strings.NewReader(message))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Authorization": {"Bearer " + firstToken}, sessionHeader: {a.ID()}}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.ReadFull(response.Body, make([]byte, 1)); err != nil {
		b.t.Fatal(err)
	}
}

// The SDK's connection of such a session is closed with its last request.
func TestSessionThatEndsBeforeItsFirstMessage(t *testing.T) {
	b := newBed(t, nil)
	s, err := b.api.open(access.With(t.Context(), access.Server()), owner{})
	if err != nil || !s.begin() {
		t.Fatal(err)
	}
	s.end(errDeleted)
	<-s.released
	transport, _ := sdk.NewInMemoryTransports()
	connection, err := s.server.Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.connected(connection, "initialize")
	s.done()
	closed := make(chan error, 1)
	go func() { closed <- connection.Wait() }() // the error says which end of the pipe was closed first
	wait.Receive(t, closed, "the connection's end")
}

// The resources of calls count for one token, together with its other requests.
func TestCallsHaveTheAPIsLimits(t *testing.T) {
	b := newBed(t, nil)
	a := b.agent(firstToken)
	var session openResult
	a.call("open_session", object{"environment": "shell"}, &session)
	b.quiet()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var calls sync.WaitGroup
	for range maxOperations {
		calls.Go(func() {
			_, _ = a.CallTool(ctx, &sdk.CallToolParams{Name: "execute", Arguments: object{"session": session.Session, "shell": "count 1000000000 1000"}})
		})
	}
	wait.For(t, "all calls run", func() bool { return b.api.sessionOf(a).requests() == maxOperations })
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
	held := b.peers.Reserve(t.Context(), clients.Credential{Token: otherID})
	defer held.Release()
	if err := held.Grow(maxHeld - 100<<10); err != nil { // another request's
		t.Fatal(err)
	}
	if status, _ := b.send(http.MethodPost, other, "", large); status != http.StatusTooManyRequests {
		t.Error(status)
	}
}

// A 429 would make clients send such messages again and again.
func TestMessagesThatNeverFitAreRejected(t *testing.T) {
	b := newBedOf(t, 2<<20, nil)
	text, id := b.token(runtime.DefaultTenant)
	a := b.agent(text)
	message := func(size int) string {
		return `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", size) + `"}`
	}
	for _, large := range []string{message(1000 << 10), `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"a":[` + strings.Repeat("0,", 10_000) + `0]}}}`} {
		if status, text := b.send(http.MethodPost, text, a.ID(), large); status != http.StatusRequestEntityTooLarge || !strings.Contains(text, "--body-memory") {
			t.Errorf("%d bytes: %d %s", len(large), status, text)
		}
	}
	held := b.peers.Reserve(t.Context(), clients.Credential{Token: id})
	defer held.Release()
	if err := held.Grow(1 << 20); err != nil { // another request's
		t.Fatal(err)
	}
	if status, text := b.send(http.MethodPost, text, a.ID(), message(500<<10)); status != http.StatusTooManyRequests {
		t.Errorf("%d %s", status, text)
	}
}

func TestIdleSessionsEnd(t *testing.T) {
	b := newBed(t, func(a *API) { a.idle = time.Millisecond })
	if status, text := b.send(http.MethodPost, firstToken, "", initialize); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	wait.For(t, "the session ends", func() bool { return b.api.count() == 0 })
}

func (a *API) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.sessions)
}

func (s *session) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy
}

func (a *API) sessionOf(of *agent) *session {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sessions[of.ID()]
}
