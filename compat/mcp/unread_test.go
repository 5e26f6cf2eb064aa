package mcp

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	gort "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/files"
	"github.com/rockpool/rockpool/test/wait"
)

// An unread is the answer to a client that reads nothing: each Write waits until the client closes
// the connection.
type unread struct {
	*httptest.ResponseRecorder
	begun chan string // what the first Write writes
	left  chan struct{}
	once  sync.Once
}

func (u *unread) Write(p []byte) (int, error) {
	u.once.Do(func() { u.begun <- string(p) })
	<-u.left
	gort.KeepAlive(p)
	return 0, http.ErrHandlerTimeout
}

// unread sends a message in an agent's session, and reads nothing. Begun receives what the client
// would read first.
func (b *bed) unread(a *agent, message string) (begun <-chan string, leave func()) {
	b.t.Helper()
	r := httptest.NewRequestWithContext(b.t.Context(), http.MethodPost, "/mcp", strings.NewReader(message))
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Authorization": {"Bearer " + firstToken}, sessionHeader: {a.ID()}}
	w := &unread{ResponseRecorder: httptest.NewRecorder(), begun: make(chan string, 1), left: make(chan struct{})}
	var serving sync.WaitGroup
	serving.Go(func() { b.direct.ServeHTTP(w, r) })
	leave = sync.OnceFunc(func() {
		close(w.left)
		serving.Wait()
	})
	b.t.Cleanup(leave)
	return w.begun, leave
}

// An unread answer keeps no runner.
func TestSessionsOfClientsThatDoNotReadEnd(t *testing.T) {
	b := newBed(t, nil)
	a := b.agent(firstToken)
	var session openResult
	a.call("open_session", object{"environment": "shell"}, &session)
	answer, _ := b.unread(a, fmt.Sprintf(`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"list_files","arguments":{"session":%q}}}`, session.Session))
	wait.Receive(t, answer, "the answer")
	s := b.api.sessionOf(a)
	s.end(errDeleted)
	wait.Receive(t, s.released, "the end of all that the session holds")
	if b.held() != 0 {
		t.Errorf("%d held, want 0", b.held())
	}
}

// An unread notification doesn't keep the program running.
func TestCallsOfClientsThatDoNotReadAreCancelled(t *testing.T) {
	b := newBed(t, nil)
	a := b.agent(firstToken)
	var session openResult
	a.call("open_session", object{"environment": "shell"}, &session)
	begun, _ := b.unread(a, fmt.Sprintf(`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"execute","arguments":{"session":%q,"shell":"sleep 1000"},"_meta":{"progressToken":1}}}`, session.Session))
	_, after, _ := strings.Cut(wait.Receive(t, begun, "a notification"), "execution ")
	execution, _, _ := strings.Cut(after, " has started")
	if status, text := b.send(http.MethodPost, firstToken, a.ID(), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x"}}`); status != http.StatusAccepted {
		t.Fatalf("%d %s", status, text)
	}
	wait.For(t, "the execution is cancelled", func() bool {
		x, err := b.api.services.Engine.Executions.Get(access.With(t.Context(), access.Server()), runtime.ExecutionID(execution), 0)
		return err == nil && x.End.Outcome == runtime.OutcomeCancelled
	})
}

// Bodies and answers count while a program runs and while the client doesn't read.
func TestMemoryOfCallsIsCounted(t *testing.T) {
	const calls, size = 3, 512 << 10
	b := newBed(t, nil)
	a := b.agent(firstToken)
	var session openResult
	a.call("open_session", object{"environment": "shell"}, &session)
	for path, text := range map[string]string{"binary": "\xff", "escaped": "\x01", "html": "<"} {
		if _, err := b.engine.Files.Update(access.With(t.Context(), access.Server()), runtime.RunnerID(session.Session), "", files.Update{Write: []runtime.FileWrite{{Path: path, Data: []byte(strings.Repeat(text, size)), Mode: 0o644}}}); err != nil {
			t.Fatal(err)
		}
	}
	read := func(path string) string {
		return fmt.Sprintf(`"read_file","arguments":{"session":%q,"path":%q,"maxBytes":1048576}`, session.Session, path)
	}
	for what, call := range map[string]string{
		"binary": read("binary"), "escaped text": read("escaped"), "HTML": read("html"),
		"input": fmt.Sprintf(`"execute","arguments":{"session":%q,"shell":"sleep 1000","stdin":%q},"_meta":{"progressToken":1}`, session.Session, strings.Repeat("x", size)),
	} {
		var messages []string
		for i := range calls {
			messages = append(messages, fmt.Sprintf(`{"jsonrpc":"2.0","id":"%s %d","method":"tools/call","params":{"name":%s}}`, what, i, call))
		}
		counted, heap := b.peers.Usage().BodyBytes, heapBytes()
		var leaves []func()
		for _, message := range messages {
			begun, leave := b.unread(a, message)
			wait.Receive(t, begun, what)
			leaves = append(leaves, leave)
		}
		counted = b.peers.Usage().BodyBytes - counted
		// It looks once, while all calls run. A call ends after 40 s at most, and then its memory is free.
		if grown := heapBytes() - heap; grown > counted+calls*200<<10 {
			t.Errorf("%s: a call takes %d KiB, of which %d are counted", what, grown>>10/calls, counted>>10/calls)
		}
		for i, leave := range leaves {
			b.send(http.MethodPost, firstToken, a.ID(), fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"%s %d"}}`, what, i))
			leave()
		}
		gort.KeepAlive(messages)
	}
}

// A program creates many files that look like images.
func TestDroppedFilesTakeNoMemory(t *testing.T) {
	b := newBed(t, nil)
	text, id := b.token(runtime.DefaultTenant)
	a := b.agent(text)
	var session openResult
	a.call("open_session", object{"environment": "shell"}, &session)
	var made []runtime.FileWrite
	for i := range 3 {
		made = append(made, runtime.FileWrite{Path: fmt.Sprintf("%d.png", i), Data: make([]byte, maxImage), Mode: 0o644})
	}
	runner := runtime.RunnerID(session.Session)
	if _, err := b.engine.Files.Update(access.With(t.Context(), access.Server()), runner, "", files.Update{Write: made}); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the requests have ended", func() bool { return b.peers.Usage().BodyBytes == 0 })
	hold := b.peers.Reserve(t.Context(), clients.Credential{Token: id})
	defer hold.Release()
	s := b.api.sessionOf(a)
	c := &call{session: s, ctx: s.ctx, request: &request{hold: &hold}, until: time.Now().Add(wait.Limit)}
	var out ran
	c.collect(runner, nil, &out)
	if held := b.peers.Usage().BodyBytes; held != 0 || c.request.taken != 0 || len(out.Files) != len(made) {
		t.Errorf("%d bytes are held, %d counted: %+v", held, c.request.taken, out)
	}
	if _, err := c.request.read(strings.NewReader("x"), maxImage); err == nil || b.peers.Usage().BodyBytes != 0 {
		t.Errorf("%d bytes are held after %v", b.peers.Usage().BodyBytes, err)
	}
	for _, f := range out.Files {
		if f.Text+f.Base64 != "" || !strings.Contains(f.Note, "left out") {
			t.Errorf("%+v", f)
		}
	}
}

func heapBytes() int64 {
	gort.GC()
	gort.GC()
	var stats gort.MemStats
	gort.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// The error says what to do instead. A program that has run isn't run again.
func TestAnswersWithoutMemoryAreRefused(t *testing.T) {
	b := newBed(t, nil)
	text, id := b.token(runtime.DefaultTenant)
	a := b.agent(text)
	var session openResult
	a.call("open_session", object{"environment": "shell"}, &session)
	a.call("write_files", object{"session": session.Session, "files": []object{{"path": "x", "text": strings.Repeat("x", 100<<10)}}}, &wrote{})
	wait.For(t, "the requests have ended", func() bool { return b.peers.Usage().BodyBytes == 0 })
	held := b.peers.Reserve(t.Context(), clients.Credential{Token: id})
	if err := held.Grow(maxHeld - 20<<10); err != nil { // of other requests
		t.Fatal(err)
	}
	if p := a.refused("read_file", object{"session": session.Session, "path": "x", "maxBytes": 1 << 20}, runtime.CodeQuotaExceeded, ""); !p.Retryable {
		t.Errorf("%+v", p)
	}
	a.call("read_file", object{"session": session.Session, "path": "x", "maxBytes": 1000}, &content{})
	p := a.refused("execute", object{"session": session.Session, "shell": "lines 100000"}, runtime.CodeLimitExceeded, "")
	_, execution, _ := strings.Cut(p.Message, "read_output has the output of execution ")
	if p := a.refused("read_output", object{"execution": execution, "maxBytes": maxReadOutput}, runtime.CodeQuotaExceeded, ""); !p.Retryable {
		t.Errorf("%+v", p)
	}
	held.Release()
	var out page
	if a.call("read_output", object{"execution": execution, "maxBytes": 1000}, &out); len(out.Chunks) == 0 {
		t.Errorf("%+v: %+v", p, out)
	}
}

// It holds for all texts of tools.
func TestQuotedIsAnUpperBound(t *testing.T) {
	for r := range rune(0x3000) {
		text := string(r)
		if data, err := json.Marshal(text); err != nil || len(data)-2 > quoted(text) {
			t.Errorf("%q takes %s, not %d bytes", text, data, quoted(text))
		}
	}
}

// It holds whatever the SDK escapes in text and in structured content.
func TestAnswersTakeNoMoreMemoryThanCounted(t *testing.T) {
	for _, text := range []string{"x", "<", ">", "&", "\x01", `"`, "\u2028"} {
		text = strings.Repeat(text, 10_000)
		for _, reply := range []answer{{text: text}, {}} {
			c := &call{request: &request{hold: new(clients.Reservation)}}
			result, err := c.result(content{Text: text}, reply)
			if err != nil {
				t.Fatal(err)
			}
			const frame = 200 // bytes around them
			if data, err := json.Marshal(result); err != nil || answerCopies*int64(len(data)-frame) > c.request.taken {
				t.Errorf("%q: an answer of %d bytes takes %d, %v", text[:1], len(data), c.request.taken, err)
			}
		}
	}
}
