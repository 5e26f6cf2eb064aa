package mcp

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/test/wait"
)

// An unread is the answer to a client that reads nothing: each Write waits until the client leaves.
type unread struct {
	*httptest.ResponseRecorder
	begun chan string // what the first Write writes
	left  chan struct{}
	once  sync.Once
}

func (u *unread) Write(p []byte) (int, error) {
	u.once.Do(func() { u.begun <- string(p) })
	<-u.left
	return 0, http.ErrHandlerTimeout
}

// unread sends a call of a tool in an agent's session, and reads nothing. The first return value is what it would read first.
func (b *bed) unread(a *agent, id, call string) (begun <-chan string, leave func()) {
	b.t.Helper()
	message := fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"tools/call","params":%s}`, id, call)
	r := httptest.NewRequestWithContext(b.t.Context(), http.MethodPost, "/mcp", strings.NewReader(message))
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Authorization": {"Bearer " + firstToken}, sessionHeader: {a.ID()}}
	w := &unread{ResponseRecorder: httptest.NewRecorder(), begun: make(chan string, 1), left: make(chan struct{})}
	var serving sync.WaitGroup
	serving.Go(func() { b.serves.ServeHTTP(w, r) })
	leave = sync.OnceFunc(func() {
		close(w.left)
		serving.Wait()
	})
	b.t.Cleanup(leave)
	return w.begun, leave
}

// TestSessionsOfClientsThatDoNotReadEnd: an answer that is stuck keeps no runner.
func TestSessionsOfClientsThatDoNotReadEnd(t *testing.T) {
	b := newBed(t, nil)
	a := b.agent(firstToken)
	var session opened
	a.call("open_session", object{"environment": "shell"}, &session)
	answer, _ := b.unread(a, "x", fmt.Sprintf(`{"name":"list_files","arguments":{"session":%q}}`, session.Session))
	wait.Receive(t, answer, "the answer")
	s := b.door.sessionOf(a)
	s.end(errDeleted)
	wait.Receive(t, s.released, "the end of all that the session holds")
	if b.held() != 0 {
		t.Errorf("%d held", b.held())
	}
}

// TestCallsOfClientsThatDoNotReadAreCancelled: a notification that is stuck doesn't keep the program running.
func TestCallsOfClientsThatDoNotReadAreCancelled(t *testing.T) {
	b := newBed(t, nil)
	a := b.agent(firstToken)
	var session opened
	a.call("open_session", object{"environment": "shell"}, &session)
	begun, _ := b.unread(a, "x", fmt.Sprintf(`{"name":"execute","arguments":{"session":%q,"shell":"sleep 1000"},"_meta":{"progressToken":1}}`, session.Session))
	_, after, _ := strings.Cut(wait.Receive(t, begun, "a notification"), "execution ")
	execution, _, _ := strings.Cut(after, " has started")
	if status, text := b.send(http.MethodPost, firstToken, a.ID(), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x"}}`); status != http.StatusAccepted {
		t.Fatalf("%d %s", status, text)
	}
	wait.For(t, "the execution is cancelled", func() bool {
		x, err := b.door.host.Guard.Execution(access.With(t.Context(), access.Server()), runtime.ExecutionID(execution), 0)
		return err == nil && x.End.Outcome == runtime.OutcomeCancelled
	})
}
