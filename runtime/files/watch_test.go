package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answeringRunner is a runner whose agent answers a request with frames, then closes its stream. answered
// is closed when all of them were read.
type answeringRunner struct {
	unreachable
	frames   [][]byte
	answered chan struct{}
}

func (a *answeringRunner) Dial(context.Context, runtime.RunnerID) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		defer close(a.answered)
		_, _, _ = agent.NewFrameReader(theirs, agent.AgentSide).Next()
		for _, f := range append([][]byte{agent.AppendFrame(nil, agent.KindResponse, []byte(`{"protocol":1}`))}, a.frames...) {
			if _, err := theirs.Write(f); err != nil {
				return
			}
		}
	}()
	return ours, nil
}

func (a *answeringRunner) watch(t *testing.T, path string) *Watch {
	t.Helper()
	a.answered = make(chan struct{})
	w, err := New(a, nil).WatchFiles(t.Context(), "r", path, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	if a.uses != 0 {
		t.Error("a watch is a use of the runner")
	}
	return w
}

func changesFrame(t *testing.T, changes agent.Changes) []byte {
	t.Helper()
	frame, err := agent.AppendJSON(nil, agent.KindChanges, changes)
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

// TestWatch checks that changes are reported in order, followed by the reason of the end.
func TestWatch(t *testing.T) {
	change := func(path string, kind agent.ChangeKind) agent.Change {
		return agent.Change{Path: []byte(path), Kind: kind}
	}
	a := &answeringRunner{frames: [][]byte{
		changesFrame(t, agent.Changes{Changes: []agent.Change{change("a", agent.ChangeCreated), change("b", agent.ChangeChanged)}}),
		agent.AppendFrame(nil, agent.KindEnd, []byte(`{"protocol":1,"error":{"code":"notFound","message":"went"}}`)),
	}}
	w := a.watch(t, "d")
	var got []string
	for {
		c, err := w.Next(t.Context())
		if err != nil {
			if runtime.CodeOf(err) != runtime.CodeFileError {
				t.Errorf("got %v, want FILE_ERROR", err)
			}
			break
		}
		got = append(got, fmt.Sprint(c.Type, " ", c.Path))
	}
	if all := strings.Join(got, ", "); all != "BEGAN , CREATED a, CHANGED b" {
		t.Error(all)
	}
	a = &answeringRunner{} // its stream breaks
	w = a.watch(t, "")
	if _, err := w.Next(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := w.Next(t.Context()); runtime.CodeOf(err) != runtime.CodeClusterUnavailable {
		t.Errorf("got %v, want CLUSTER_UNAVAILABLE", err)
	}
}

// TestSlowSubscriberGetsLost checks that a slow subscriber delays nothing, and that its queue is bounded.
func TestSlowSubscriberGetsLost(t *testing.T) {
	var all agent.Changes
	for i := range agent.MaxChanges {
		all.Changes = append(all.Changes, agent.Change{Path: fmt.Append(nil, i), Kind: agent.ChangeChanged})
	}
	frame := changesFrame(t, all)
	a := &answeringRunner{}
	for range 50 {
		a.frames = append(a.frames, frame)
	}
	w := a.watch(t, "")
	<-a.answered // though nothing is read
	counts := map[runtime.FileChangeType]int{}
	for n := 0; ; n++ {
		c, err := w.Next(t.Context())
		if err != nil {
			break
		}
		if counts[c.Type]++; n == 0 && c.Type != runtime.FilesBegan || n == 1 && c.Type != runtime.FilesLost {
			t.Errorf("change %d: %+v", n, c)
		}
	}
	if counts[runtime.FileChanged] > maxWaiting || counts[runtime.FilesLost] != 1 {
		t.Errorf("%v", counts)
	}
}

// TestQueueIsBoundedInBytes uses few changes with long paths.
func TestQueueIsBoundedInBytes(t *testing.T) {
	long := func(n int) (all agent.Changes) {
		for range n {
			all.Changes = append(all.Changes, agent.Change{Path: bytes.Repeat([]byte("x"), 4096), Kind: agent.ChangeChanged})
		}
		return all
	}
	waiting := []runtime.FileChange{{Type: runtime.FilesBegan}}
	for _, test := range []struct{ frame, waits int }{{40, 41}, {24, 65}, {1, 3}, {64, 66}, {65, 2}, {3, 5}} {
		waiting = appendChanges(waiting, long(test.frame))
		held := 0
		for _, c := range waiting {
			held += len(c.Path)
		}
		if len(waiting) != test.waits || held > maxWaitingBytes || waiting[0].Type != runtime.FilesBegan {
			t.Errorf("after %d: %d changes wait, with %d bytes", test.frame, len(waiting), held)
		}
	}
}

// slowToClose is a connection whose last Close blocks until it is released.
type slowToClose struct {
	net.Conn
	closes atomic.Int32
	let    chan struct{}
}

func (c *slowToClose) Close() error {
	if c.closes.Add(1) == 2 { // the first is an error's
		<-c.let
	}
	return c.Conn.Close()
}

// TestCloseOfAWatchWaitsForItsGoroutines also covers a watch that the agent ended.
func TestCloseOfAWatchWaitsForItsGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answeringRunner{answered: make(chan struct{})}
		conn, err := a.Dial(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		slow := &slowToClose{Conn: conn, let: make(chan struct{})}
		watching, err := agent.WatchFiles(t.Context(), slow, agent.Watch{})
		if err != nil {
			t.Fatal(err)
		}
		out, ended := make(chan runtime.FileChange, 1), make(chan error, 1)
		go func() { ended <- carry(t.Context(), watching, make(chan agent.Changes), out) }()
		synctest.Wait()
		if n := slow.closes.Load(); n != 2 || len(out) != 1 {
			t.Fatalf("%d closes, %d changes", n, len(out))
		}
		select {
		case err := <-ended:
			t.Error("it left its reader:", err)
		default:
		}
		close(slow.let)
		synctest.Wait()
		if len(ended) != 1 {
			t.Error("it continues")
		}
	})
}

func TestWatchOfAMissingDirectoryFails(t *testing.T) {
	cause := errors.New("a cause")
	if _, err := New(&unreachable{use: cause}, nil).WatchFiles(t.Context(), "r", "", false); !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
	if _, err := New(&unreachable{}, nil).WatchFiles(t.Context(), "r", "x\x00", false); runtime.CodeOf(err) != runtime.CodeInvalidInput {
		t.Errorf("got %v, want INVALID_INPUT", err)
	}
}

func TestSearchInput(t *testing.T) {
	for field, s := range map[string]Search{
		"name": {}, "name ": {Name: "["}, "name  ": {Name: "a/b"}, "path": {Path: "a\x00", Name: "*"}, "containing": {Text: "a\nb"},
		"containing ": {Text: strings.Repeat("x", 257)}, "maxMatches": {Name: "*", MaxMatches: new(int)}, "maxMatches ": {Name: "*", MaxMatches: new(1001)},
	} {
		var typed *runtime.Error
		if _, err := New(&unreachable{}, nil).SearchFiles(t.Context(), "r", s); !errors.As(err, &typed) || typed.Code != runtime.CodeInvalidInput || typed.Field != strings.TrimSpace(field) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
