package pool

import (
	"slices"
	"testing"

	"github.com/rockpool/rockpool/runtime"
)

// TestRunnersMoveForward checks that a state never moves backwards, and that only changes are announced.
func TestRunnersMoveForward(t *testing.T) {
	states := []runtime.RunnerState{
		runtime.RunnerStarting, runtime.RunnerIdle, runtime.RunnerClaiming, runtime.RunnerClaimed, runtime.RunnerStopping, runtime.RunnerGone,
	}
	for i, from := range states {
		for j, to := range states {
			var announced []runtime.Runner
			o := &loop{pool: &Pool{options: Options{Observe: func(r runtime.Runner) { announced = append(announced, r) }}}}
			e := &entry{Runner: runtime.Runner{ID: "r", State: from}}
			next := runtime.Runner{ID: "r", State: to, Message: "why"}
			want := []runtime.Runner{next}
			if i >= j {
				want = nil
			}
			same := func(a, b runtime.Runner) bool { return a.State == b.State && a.Message == b.Message }
			if moved := o.advance(e, next); moved != (i < j) || !slices.EqualFunc(announced, want, same) || (e.State == to) != (i <= j) {
				t.Errorf("from %s to %s: moved %v, to %s, and announced %v", from, to, moved, e.State, announced)
			}
		}
	}
}
