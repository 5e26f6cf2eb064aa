package clustertest

import (
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
)

// testSizes resizes a terminal, and attaches again after a part of that. Every size must come once,
// at its time, and must not change the offsets of output.
func testSizes(t *testing.T, dial Dial) {
	first, second, third := agent.Size{Columns: 80, Rows: 24}, agent.Size{Columns: 100, Rows: 30}, agent.Size{Columns: 90, Rows: 30}
	id := string(runtime.NewExecutionID())
	session := begun(t, dial.start(t, agent.Start{ID: id, Argv: []string{"cat"}, Stdin: true, Terminal: &first}))
	at, _ := sized(t, session, first, 0)
	for _, size := range []agent.Size{second, second, third} {
		if err := session.Resize(size); err != nil {
			t.Fatal(err)
		}
	}
	at, offset := sized(t, session, second, at)
	sized(t, session, third, at) // not acknowledged, so it comes again
	if err := session.Ack(offset); err != nil {
		t.Fatal(err)
	}
	if err := session.AckResized(at); err != nil {
		t.Fatal(err)
	}
	_ = session.Close()

	conn, err := dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again, err := agent.AttachExecution(t.Context(), conn, agent.Attach{ID: id, Offset: offset, Terminal: true, Resized: at})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Close() })
	sized(t, begun(t, again), third, at)
	if err := again.Kill(0); err != nil {
		t.Fatal(err)
	}
	drain(t, again)
}

// sized reads up to the next size, which must be this one, set later than after. It returns when it
// was set, and the offset of the output after it.
func sized(t *testing.T, session *agent.Session, want agent.Size, after time.Duration) (at time.Duration, offset int64) {
	t.Helper()
	for {
		event, err := session.Next()
		if err != nil {
			t.Fatal(err)
		}
		if event.Kind == agent.KindResized {
			if event.Size != want || event.Time <= after {
				t.Fatalf("%v after %v, want %v after %v", event.Size, event.Time, want, after)
			}
			return event.Time, event.Offset
		}
	}
}
