package pool

import (
	"testing"
	"time"
)

// The loop's timer fires at next. If that stayed in the past while a list runs, the loop would never pause.
func TestLongListDefersTheNext(t *testing.T) {
	var l listing
	now := time.Now()
	if !l.begin(now) {
		t.Fatal("the first list doesn't begin")
	}
	later := now.Add(2 * relist)
	if l.begin(later) {
		t.Error("a second list begins while the first one runs")
	}
	if !l.next.After(later) {
		t.Errorf("the next list is due at %v, want a time after %v", l.next, later)
	}
}
