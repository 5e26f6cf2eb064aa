package taskrunner

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rockpool/rockpool/runtime/health"
)

func wantStats(t *testing.T, counts *health.TaskCounts, want health.TaskStats) {
	t.Helper()
	if diff := cmp.Diff(want, counts.Read(), cmpopts.IgnoreFields(health.TaskStats{}, "Phases")); diff != "" {
		t.Error(diff)
	}
}

// counted runs a task with shared counters, calls do after a while, and ends the server.
func counted(counts *health.TaskCounts, w *world, do func(*Task), change ...func(*Config)) {
	config := w.config()
	for _, f := range change {
		f(&config)
	}
	config.Counts = counts
	task := New(config, State{Phase: Pending})
	ctx, cancel := context.WithCancel(context.Background())
	go task.Run(ctx)
	pass(time.Minute)
	do(task)
	pass(time.Hour)
	cancel()
	<-task.left
}

func TestCounts(t *testing.T) {
	broken, busy := errors.New("broken"), errors.New("busy")
	stop := func(task *Task) { task.Stop(End{}) }
	leave := func(*Task) {}
	for name, test := range map[string]struct {
		world *world
		do    func(*Task)
		want  health.TaskStats
	}{
		"runs, and is left":           {&world{}, leave, health.TaskStats{Starts: 1}},
		"is stopped":                  {&world{}, stop, health.TaskStats{Starts: 1, Kills: 1}},
		"is deaf":                     {&world{deaf: true}, stop, health.TaskStats{Starts: 1, Kills: 1, ForcedKills: 1}},
		"starts at the second time":   {&world{starts: []error{broken}}, leave, health.TaskStats{Starts: 1, StartFailures: 1, Restarts: 1}},
		"isn't usable at first":       {&world{unusable: []error{broken}}, leave, health.TaskStats{Starts: 1, StartFailures: 1, Restarts: 1}},
		"can't be saved at first":     {&world{saves: []error{broken}}, leave, health.TaskStats{Starts: 1, StartFailures: 1, Restarts: 1}},
		"never starts":                {&world{starts: slices.Repeat([]error{broken}, 9)}, leave, health.TaskStats{StartFailures: 3, Restarts: 2}},
		"never can":                   {&world{starts: []error{&Failure{Unrecoverable: true, Err: broken}}}, leave, health.TaskStats{StartFailures: 1}},
		"ends by itself":              {&world{}, func(task *Task) { task.config.Driver.(*world).procs[0].end() }, health.TaskStats{Starts: 1, Exits: 1}},
		"is removed at the third try": {&world{destroys: []error{busy, busy}}, stop, health.TaskStats{Starts: 1, Kills: 1, RemovalFailures: 2}},
		"is never removed":            {&world{destroys: slices.Repeat([]error{busy}, 9)}, stop, health.TaskStats{Starts: 1, Kills: 1, RemovalFailures: 5, Leaks: 1}},
		"stops before it started":     {&world{starts: slices.Repeat([]error{broken}, 9)}, stop, health.TaskStats{StartFailures: 3, Restarts: 2}},
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
		counted(counts, w, func(task *Task) {
			for range 3 {
				task.Stop(End{})
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
		counted(counts, w, func(*Task) {})
		config := w.config()
		config.Counts = counts
		restore := func(state State) error {
			task := New(config, state)
			defer task.Close()
			return task.Restore(t.Context())
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
		if restore(State{Phase: Pending}) == nil { // it never ran, so nothing is lost
			t.Error("a task that never ran is restored")
		}
		wantStats(t, counts, health.TaskStats{Starts: 1, Restores: 1, Lost: 2})
	})
}

// The world's driver takes 10 ms for a start, the turn takes 5 ms, and nothing else takes time.
func TestPhasesOfAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := NewCounts()
		w := &world{unusable: []error{errors.New("not yet")}}
		counted(counts, w, func(*Task) {}, func(config *Config) {
			config.Turn = func(context.Context) (func(), error) {
				<-time.After(5 * time.Millisecond)
				return func() {}, nil
			}
		})
		phases := counts.Read().Phases
		took := map[health.Phase]time.Duration{health.PhaseTurn: 10 * time.Millisecond, health.PhaseStart: 20 * time.Millisecond}
		for phase, times := range map[health.Phase]int64{health.PhaseTurn: 2, health.PhasePrestart: 2, health.PhaseStart: 2, health.PhasePoststart: 1, health.PhaseSave: 1} {
			if got := phases[phase]; got.Count() != times || got.Sum != took[phase] {
				t.Errorf("%s: %d times, %v", phase, got.Count(), got.Sum)
			}
		}
		if len(phases) != 5 {
			t.Errorf("%d phases", len(phases))
		}
	})
}
