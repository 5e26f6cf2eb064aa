package runner

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/runtime/health"
)

func wantStats(t *testing.T, counts *health.TaskCounts, want health.TaskStats) {
	t.Helper()
	if diff := cmp.Diff(want, counts.Read(), cmpopts.IgnoreFields(health.TaskStats{}, "Phases")); diff != "" {
		t.Error(diff)
	}
}

// counted runs a runner with shared counters, calls do after a while, and ends the server.
func counted(counts *health.TaskCounts, w *world, do func(*Runner)) {
	w.counts = counts
	r, leave := start(w, starting)
	pass(time.Minute)
	do(r)
	pass(time.Hour)
	leave()
}

func TestCounts(t *testing.T) {
	broken, busy := errors.New("broken"), errors.New("busy")
	stop := func(task *Runner) { task.Stop(Exit{}) }
	leave := func(*Runner) {}
	for name, test := range map[string]struct {
		world *world
		do    func(*Runner)
		want  health.TaskStats
	}{
		"runs: one start":                   {&world{}, leave, health.TaskStats{Starts: 1}},
		"stopped: one kill":                 {&world{}, stop, health.TaskStats{Starts: 1, Kills: 1}},
		"ignores the stop: forced kill":     {&world{deaf: true}, stop, health.TaskStats{Starts: 1, Kills: 1, ForcedKills: 1}},
		"first start fails: one restart":    {&world{starts: []error{broken}}, leave, health.TaskStats{Starts: 1, StartFailures: 1, Restarts: 1}},
		"first unusable: one restart":       {&world{unusable: []error{broken}}, leave, health.TaskStats{Starts: 1, StartFailures: 1, Restarts: 1}},
		"first save fails: one restart":     {&world{saves: []error{broken}}, leave, health.TaskStats{Starts: 1, StartFailures: 1, Restarts: 1}},
		"every start fails: two restarts":   {&world{starts: slices.Repeat([]error{broken}, 9)}, leave, health.TaskStats{StartFailures: 3, Restarts: 2}},
		"unrecoverable failure: no restart": {&world{starts: []error{&sandbox.Failure{Unrecoverable: true, Err: broken}}}, leave, health.TaskStats{StartFailures: 1}},
		"process ends: one exit":            {&world{}, func(task *Runner) { task.steps.(*world).procs[0].end() }, health.TaskStats{Starts: 1, Exits: 1}},
		"two removals fail: no leak":        {&world{destroys: []error{busy, busy}}, stop, health.TaskStats{Starts: 1, Kills: 1, RemovalFailures: 2}},
		"every removal fails: one leak":     {&world{destroys: slices.Repeat([]error{busy}, 9)}, stop, health.TaskStats{Starts: 1, Kills: 1, RemovalFailures: 5, Leaks: 1}},
		"stopped before a start: no kill":   {&world{starts: slices.Repeat([]error{broken}, 9)}, stop, health.TaskStats{StartFailures: 3, Restarts: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				counts := NewCounts()
				counted(counts, test.world, test.do)
				wantStats(t, counts, test.want)
			})
		})
	}
}

// A leak counts once, however often its removal is retried.
func TestCountsOfALeak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := NewCounts()
		w := &world{destroys: slices.Repeat([]error{errors.New("busy")}, 7)}
		counted(counts, w, func(task *Runner) {
			for range 3 {
				task.Stop(Exit{})
				pass(time.Hour)
			}
		})
		wantStats(t, counts, health.TaskStats{Starts: 1, Kills: 1, RemovalFailures: 7, Leaks: 1})
	})
}

func TestCountsOfRestores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := NewCounts()
		w := &world{}
		counted(counts, w, func(*Runner) {})
		restore := func(s Status) error {
			r := w.runner(s)
			defer r.close()
			return r.Restore(t.Context())
		}
		if err := restore(w.last()); err != nil {
			t.Fatal(err)
		}
		w.unusable = []error{errors.New("its agent doesn't answer")}
		if restore(w.last()) == nil {
			t.Error("an unusable task is restored")
		}
		w.procs[0].end()
		if restore(w.last()) == nil {
			t.Error("an ended task is restored")
		}
		if restore(starting) == nil { // it never ran, so nothing is lost
			t.Error("a task that never ran is restored")
		}
		wantStats(t, counts, health.TaskStats{Starts: 1, Restores: 1, Lost: 2})
	})
}

// The world's driver takes 10 ms for a start, the turn takes 5 ms, and nothing else takes time.
func TestPhasesOfAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := NewCounts()
		w := &world{unusable: []error{errors.New("not yet")}, admit: func(context.Context) (func(), error) {
			<-time.After(5 * time.Millisecond)
			return func() {}, nil
		}}
		counted(counts, w, func(*Runner) {})
		phases := counts.Read().Phases
		took := map[health.Phase]time.Duration{health.PhaseTurn: 10 * time.Millisecond, health.PhaseStart: 20 * time.Millisecond}
		for phase, times := range map[health.Phase]int64{health.PhaseTurn: 2, health.PhasePrestart: 2, health.PhaseStart: 2, health.PhasePoststart: 1, health.PhaseSave: 1} {
			if got := phases[phase]; got.Count() != times || got.Sum != took[phase] {
				t.Errorf("%s: %d times, %v", phase, got.Count(), got.Sum)
			}
		}
		if len(phases) != 5 {
			t.Errorf("%d phases, want 5", len(phases))
		}
	})
}
