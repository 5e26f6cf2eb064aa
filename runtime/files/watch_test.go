package files

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answering is a runner whose agent answers a request with frames, then closes its stream. Answered is closed
// when all of them were read.
type answering struct {
	unreachable
	frames   [][]byte
	answered chan struct{}
}

func (a *answering) Dial(context.Context, runtime.RunnerID) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		defer close(a.answered)
		_, _, _ = agent.NewFrameReader(theirs, agent.AgentSide).Next()
		for _, f := range append([][]byte{agent.AppendFrame(nil, agent.KindResponse, []byte(`{"protocol":6}`))}, a.frames...) {
			if _, err := theirs.Write(f); err != nil {
				return
			}
		}
	}()
	return ours, nil
}

func (a *answering) watch(t *testing.T, path string) *Watch {
	t.Helper()
	a.answered = make(chan struct{})
	w, err := New(a).WatchFiles(t.Context(), "r", path, true)
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

// TestWatch reports changes in order, and why there are no more.
func TestWatch(t *testing.T) {
	change := func(path string, kind agent.ChangeKind) agent.Change {
		return agent.Change{Path: []byte(path), Kind: kind}
	}
	a := &answering{frames: [][]byte{
		changesFrame(t, agent.Changes{Changes: []agent.Change{change("a", agent.ChangeCreated), change("b", agent.ChangeChanged)}}),
		agent.AppendFrame(nil, agent.KindEnd, []byte(`{"protocol":6,"error":{"code":"notFound","message":"went"}}`)),
	}}
	w := a.watch(t, "d")
	var got []string
	for {
		c, err := w.Next(t.Context())
		if err != nil {
			if runtime.CodeOf(err) != runtime.CodeFileError {
				t.Error(err)
			}
			break
		}
		got = append(got, fmt.Sprint(c.Type, " ", c.Path))
	}
	if all := strings.Join(got, ", "); all != "BEGAN , CREATED a, CHANGED b" {
		t.Error(all)
	}
	a = &answering{} // its stream breaks
	w = a.watch(t, "")
	if _, err := w.Next(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := w.Next(t.Context()); runtime.CodeOf(err) != runtime.CodeClusterUnavailable {
		t.Error(err)
	}
}

// TestSlowSubscriberLoses: nobody waits for it, what waits for it is bounded, and it is told.
func TestSlowSubscriberLoses(t *testing.T) {
	var all agent.Changes
	for i := range agent.MaxChanges {
		all.Changes = append(all.Changes, agent.Change{Path: fmt.Append(nil, i), Kind: agent.ChangeChanged})
	}
	frame := changesFrame(t, all)
	a := &answering{}
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

func TestWatchOfNothing(t *testing.T) {
	cause := errors.New("a cause")
	if _, err := New(&unreachable{use: cause}).WatchFiles(t.Context(), "r", "", false); !errors.Is(err, cause) {
		t.Error(err)
	}
	if _, err := New(&unreachable{}).WatchFiles(t.Context(), "r", "x\x00", false); runtime.CodeOf(err) != runtime.CodeInvalidInput {
		t.Error(err)
	}
}

func TestSearchInput(t *testing.T) {
	for field, s := range map[string]Search{
		"name": {}, "name ": {Name: "["}, "name  ": {Name: "a/b"}, "path": {Path: "a\x00", Name: "*"}, "containing": {Text: "a\nb"},
		"containing ": {Text: strings.Repeat("x", 257)}, "maxMatches": {Name: "*", MaxMatches: new(int)}, "maxMatches ": {Name: "*", MaxMatches: new(1001)},
	} {
		var typed *runtime.Error
		if _, err := New(&unreachable{}).SearchFiles(t.Context(), "r", s); !errors.As(err, &typed) || typed.Code != runtime.CodeInvalidInput || typed.Field != strings.TrimSpace(field) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
