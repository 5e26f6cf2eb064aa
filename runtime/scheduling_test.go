package runtime

import (
	"testing"
	"time"
)

func TestEvaluationsAreTimed(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(1000+seconds), 0) }
	var never time.Time
	for name, test := range map[string]struct {
		dequeued, ended time.Time
		waited, worked  int // seconds; -1 means that it didn't work
	}{
		"pending":                          {never, never, 100, -1},
		"blocked, never tried itself":      {at(-1), never, 100, -1},
		"blocked, tried again":             {at(50), never, 100, -1},
		"complete":                         {at(3), at(5), 3, 2},
		"complete, at once":                {at(0), at(0), 0, 0},
		"cancelled, never taken up":        {never, at(7), 7, -1},
		"cancelled while it was blocked":   {at(-1), at(7), 7, -1},
		"cancelled by a clock that jumped": {never, at(-7), 0, -1},
	} {
		e := Evaluation{CreatedAt: at(0), DequeuedAt: test.dequeued, EndedAt: test.ended}
		waited, worked := e.Waited(at(100)), -1
		if d, ok := e.Worked(); ok {
			worked = int(d / time.Second)
		}
		if int(waited/time.Second) != test.waited || worked != test.worked {
			t.Errorf("%s: waited %v, worked %d s", name, waited, worked)
		}
	}
	if waited := (Evaluation{CreatedAt: at(5)}).Waited(at(0)); waited != 0 {
		t.Errorf("made in the future: got %v, want 0", waited)
	}
}
