package session

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/output"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/runtime/timing"
	"github.com/rockpool/rockpool/test/clock"
)

var steps = []time.Duration{10 * time.Minute, -10 * time.Minute}

// TestStepsMoveNoTimeLimit steps the wall clock while an execution runs: it ends neither early nor late. So
// does one of an earlier server, whose times are stored.
func TestStepsMoveNoTimeLimit(t *testing.T) {
	const limit = time.Minute
	for _, step := range steps {
		for _, resumed := range []bool{false, true} {
			b := newBed(t)
			b.host.Boot = timing.ReadBoot()
			s := b.session(nil)
			queued := s.queued
			if resumed {
				x := s.Execution()
				x.Timestamps.QueuedAt = x.Timestamps.QueuedAt.Round(0).Add(-step) // it was stored before the step
				x.TimeLimit = limit
				start, _ := s.rest()
				s = b.host.Resume(t.Context(), store.Unfinished{Execution: x, Start: start}, &b.runner,
					output.File(filepath.Join(t.TempDir(), "log")), func(format string, args ...any) { t.Errorf(format, args...) })
			}
			s.change(func(x runtime.Execution) runtime.Execution {
				x.TimeLimit = limit
				return x
			})
			s.record.began(agent.Started{})
			for after, want := range map[time.Duration]runtime.Outcome{limit: "", limit + AgentLate + 10*time.Second: runtime.OutcomeTimeLimit} {
				o := &loop{Session: s, checking: true, reports: make(chan func()), over: make(chan struct{})}
				close(o.over)
				o.check(t.Context(), clock.Step(queued.Add(after), step))
				if o.killed.reason != want {
					t.Errorf("resumed %t, a step of %v: after %v of %v it is killed for %q, want %q", resumed, step, after, limit, o.killed.reason, want)
				}
				o.workers.Wait()
			}
			if timestamps := s.Execution().Timestamps; timestamps.StartedAt.Sub(timestamps.QueuedAt).Abs() > limit {
				t.Errorf("resumed %t: it started %v after it was queued", resumed, timestamps.StartedAt.Sub(timestamps.QueuedAt))
			}
		}
	}
}

// TestStepsExcuseNoAgent steps the wall clock during a write, and after a long one.
func TestStepsExcuseNoAgent(t *testing.T) {
	for _, step := range steps {
		var s stall
		s.begin()
		if s.excuses(clock.Step(time.Now(), step)) {
			t.Errorf("after a step of %v a short write excuses the agent", step)
		}
		s.began.Store(new(time.Now().Add(-2 * stalledAfter)))
		s.end()
		if now := time.Now(); !s.excuses(clock.Step(now, step)) || s.excuses(clock.Step(now.Add(2*AgentLate), step)) {
			t.Errorf("after a step of %v a long write excuses the agent too briefly or for too long", step)
		}
	}
}
