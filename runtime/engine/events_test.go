package engine

import (
	"testing"

	"github.com/rockpool/rockpool/runtime/request"
)

// TestUntilSplitsEventsAtACursor reads with two readers that join output differently, and makes
// both stop at one cursor.
func TestUntilSplitsEventsAtACursor(t *testing.T) {
	b := newBed(t)
	b.environment(t, "e", 1)
	x, err := b.Executions.Start(asServer(t), request.Start{RunnerID: b.claim(t, "e").ID, Command: []string{"pace", "2000000", "1"}})
	if err != nil {
		t.Fatal(err)
	}
	_, all := b.events(t, x.ID, "")
	if len(all) < 5 {
		t.Fatalf("%d events", len(all))
	}
	// The other reader stops at every piece; this one would gather 16 of them.
	for _, meet := range all[2:min(len(all)-1, 60)] {
		r, err := b.Executions.Events(asServer(t), x.ID, all[0].Cursor)
		if err != nil {
			t.Fatal(err)
		}
		r.Until(meet.Cursor)
		met := false
		for !met {
			event, err := r.TryNext()
			if err != nil {
				t.Fatal(err)
			}
			met = event.Cursor == meet.Cursor
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	r, err := b.Executions.Events(asServer(t), x.ID, "")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	<-r.Ended()
}
