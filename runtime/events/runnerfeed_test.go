package events

import (
	"slices"
	"testing"

	"github.com/rockpool/rockpool/runtime"
)

func TestNoStateIsSentTwice(t *testing.T) {
	f := NewRunnerFeed()
	w := f.Watch("", func(runtime.Runner) bool { return true }, func(func(runtime.Runner)) {})
	put := func(id runtime.RunnerID, state runtime.RunnerState, message string) {
		f.Report(runtime.Runner{ID: id, State: state, Message: message}, false)
	}
	want := func(want ...runtime.RunnerState) {
		t.Helper()
		var got []runtime.RunnerState
		for event, ok := w.next(); ok; event, ok = w.next() {
			got = append(got, event.Runner.State)
		}
		if !slices.Equal(got, want) {
			t.Errorf("received %v, want %v", got, want)
		}
	}
	put("a", runtime.RunnerClaimed, "")
	put("b", runtime.RunnerIdle, "")
	want(runtime.RunnerClaimed, runtime.RunnerIdle)
	put("a", runtime.RunnerClaimed, "")
	put("b", runtime.RunnerClaimed, "")
	want(runtime.RunnerClaimed)
	put("a", runtime.RunnerClaimed, "why")
	want(runtime.RunnerClaimed)
	put("a", runtime.RunnerClaimed, "else")
	put("a", runtime.RunnerClaimed, "why") // as it was again, before anyone asked
	want()
	put("a", runtime.RunnerGone, "why")
	put("b", runtime.RunnerGone, "")
	want(runtime.RunnerGone, runtime.RunnerGone)
	if len(w.sent) != 0 {
		t.Errorf("%v are remembered", w.sent)
	}
	f.Remove(w)
	put("c", runtime.RunnerIdle, "")
	want()
	if len(f.watchers) != 0 {
		t.Error("the feed holds a watcher that was removed")
	}
}
