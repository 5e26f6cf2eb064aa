package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

func TestPlan(t *testing.T) {
	have := func(status runtime.AllocationStatus, ran bool) *runtime.Allocation {
		a := &runtime.Allocation{Status: status}
		if ran {
			a.RunningAt = time.Now()
		}
		return a
	}
	full, less := one, one.Minus(runtime.Resources{MemoryMiB: 1})
	for name, test := range map[string]struct {
		stopped bool
		have    *runtime.Allocation
		used    runtime.Resources
		place   bool
		short   int
	}{
		"wanted: it is placed":                 {place: true},
		"no room: four shortages":              {used: full, short: 4},
		"too little memory: one shortage":      {used: one.Minus(less), short: 1},
		"pending: nothing to do":               {have: have(runtime.AllocationPending, false)},
		"running: nothing to do":               {have: have(runtime.AllocationRunning, true), used: full},
		"failed: not started again":            {have: have(runtime.AllocationFailed, false)},
		"ended: not started again":             {have: have(runtime.AllocationComplete, true)},
		"lost after it ran: not started again": {have: have(runtime.AllocationLost, true)},
		"deregistered: nothing to do":          {stopped: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Config{Machine: one})
			s.node.Used = test.used
			register(t, s, wish("a", "env", 50))
			d := s.next(t)
			d.job.stopped, d.job.allocation = test.stopped, test.have
			if p := s.plan(d); p.place != test.place || len(p.short) != test.short {
				t.Errorf("got %+v, want place %v and %d shortages", p, test.place, test.short)
			}
			s.acked(d)
		})
	}
}

func TestAllocationMovesForward(t *testing.T) {
	moves := map[string]bool{
		"PENDING RUNNING": true, "PENDING COMPLETE": true, "PENDING FAILED": true, "PENDING LOST": true,
		"RUNNING COMPLETE": true, "RUNNING FAILED": true, "RUNNING LOST": true,
	}
	now := time.Now()
	for _, from := range allocationOrder {
		for _, to := range allocationOrder {
			a := runtime.Allocation{Status: from}
			ok := advance(&a, to, "why", now)
			if ok != moves[fmt.Sprintf("%s %s", from, to)] {
				t.Errorf("%s → %s: %v", from, to, ok)
			}
			if ok && (a.Status != to || a.Message != "why" || to.Ended() == a.EndedAt.IsZero() || (to == runtime.AllocationRunning) == a.RunningAt.IsZero()) {
				t.Errorf("%s → %s: %+v", from, to, a)
			}
		}
		if a := (runtime.Allocation{Status: from}); advance(&a, "NONSENSE", "", now) {
			t.Errorf("%s → %+v", from, a)
		}
	}
}

func TestEvaluationMovesForward(t *testing.T) {
	ended := []runtime.EvaluationStatus{runtime.EvaluationComplete, runtime.EvaluationFailed, runtime.EvaluationCancelled}
	for _, to := range ended {
		for _, from := range []runtime.EvaluationStatus{runtime.EvaluationPending, runtime.EvaluationBlocked} {
			e := evaluation{Evaluation: runtime.Evaluation{Status: from}}
			if e.end(to, "why", time.Now()); e.Status != to || e.EndedAt.IsZero() || e.Reason != "why" {
				t.Errorf("%s → %s: %+v", from, to, e)
			}
		}
		for _, from := range ended {
			e := evaluation{Evaluation: runtime.Evaluation{Status: from}}
			if e.end(to, "why", time.Now()); e.Status != from || !e.EndedAt.IsZero() || e.Reason != "" {
				t.Errorf("%s → %s: %+v", from, to, e)
			}
		}
	}
}

func TestShortage(t *testing.T) {
	capacity := runtime.Resources{CPUMHz: 4000, MemoryMiB: 1024, Processes: 100, WorkspaceMiB: 200}
	for name, test := range map[string]struct {
		room   room
		wanted runtime.Resources
		want   string
	}{
		"fits":       {room{capacity: capacity}, capacity, ""},
		"memory":     {room{capacity: capacity, used: runtime.Resources{MemoryMiB: 894}}, runtime.Resources{MemoryMiB: 512}, "memory exhausted: 512 MiB wanted, 130 MiB free"},
		"cpu":        {room{capacity: capacity, used: runtime.Resources{CPUMHz: 3000}}, runtime.Resources{CPUMHz: 1001}, "cpu exhausted: 1001 MHz wanted, 1000 MHz free"},
		"processes":  {room{capacity: capacity, used: runtime.Resources{Processes: 120}}, runtime.Resources{Processes: 1}, "processes exhausted: 1 wanted, 0 free"},
		"workspace":  {room{capacity: capacity, kept: runtime.Resources{WorkspaceMiB: 150}}, runtime.Resources{WorkspaceMiB: 64}, "workspace exhausted: 64 MiB wanted, 50 MiB free, and 150 MiB kept for runners that go first"},
		"too much":   {room{capacity: capacity}, runtime.Resources{MemoryMiB: 2048}, "memory exhausted: 2048 MiB wanted, the machine has only 1024 MiB for runners, so it can never fit: lower this limit of the environment"},
		"two things": {room{capacity: capacity, used: capacity}, runtime.Resources{CPUMHz: 1, MemoryMiB: 1}, "cpu exhausted: 1 MHz wanted, 0 MHz free; memory exhausted: 1 MiB wanted, 0 MiB free"},
	} {
		t.Run(name, func(t *testing.T) {
			short := test.room.shortages(test.wanted)
			if got := describe(short); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if test.wanted.Fits(test.room.free()) != (short == nil) {
				t.Error("fits and shortages disagree")
			}
		})
	}
}
