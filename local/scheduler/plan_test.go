package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

func TestReconcile(t *testing.T) {
	wanted, stopped := job("a", "env", 50), job("a", "env", 50)
	stopped.Stopped = true
	have := func(id runtime.AllocationID, status runtime.AllocationStatus, desired runtime.DesiredState, ran bool) *Allocation {
		a := &Allocation{ID: id, Job: "a", Status: status, Desired: desired}
		if ran {
			a.RunningAt = time.Now()
		}
		return a
	}
	full := room{capacity: one, used: one}
	free := room{capacity: one}
	for name, test := range map[string]struct {
		job   *Job
		have  []*Allocation
		room  room
		place bool
		stop  []runtime.AllocationID
		short int
	}{
		"wanted":                   {job: &wanted, room: free, place: true},
		"wanted, no room":          {job: &wanted, room: full, short: 4},
		"wanted, room is kept":     {job: &wanted, room: room{capacity: one, kept: runtime.Resources{MemoryMiB: 1}}, short: 1},
		"there":                    {job: &wanted, have: []*Allocation{have("x", runtime.AllocationPending, runtime.DesiredRun, false)}, room: free},
		"running":                  {job: &wanted, have: []*Allocation{have("x", runtime.AllocationRunning, runtime.DesiredRun, true)}, room: full},
		"failed":                   {job: &wanted, have: []*Allocation{have("x", runtime.AllocationFailed, runtime.DesiredRun, false)}, room: free},
		"ended":                    {job: &wanted, have: []*Allocation{have("x", runtime.AllocationComplete, runtime.DesiredRun, true)}, room: free},
		"lost before it ran":       {job: &wanted, have: []*Allocation{have("x", runtime.AllocationLost, runtime.DesiredRun, false)}, room: free, place: true, stop: []runtime.AllocationID{"x"}},
		"lost, and no room":        {job: &wanted, have: []*Allocation{have("x", runtime.AllocationLost, runtime.DesiredRun, false)}, room: full, short: 4, stop: []runtime.AllocationID{"x"}},
		"lost and stopped already": {job: &wanted, have: []*Allocation{have("x", runtime.AllocationLost, runtime.DesiredStop, false)}, room: free, place: true},
		"lost after it ran":        {job: &wanted, have: []*Allocation{have("x", runtime.AllocationLost, runtime.DesiredRun, true)}, room: free},
		"lost, placed again":       {job: &wanted, have: []*Allocation{have("x", runtime.AllocationLost, runtime.DesiredStop, false), have("y", runtime.AllocationPending, runtime.DesiredRun, false)}, room: free},
		"not wanted":               {job: &stopped, room: free},
		"not wanted, running":      {job: &stopped, have: []*Allocation{have("x", runtime.AllocationRunning, runtime.DesiredRun, true)}, room: free, stop: []runtime.AllocationID{"x"}},
		"not wanted, stopping":     {job: &stopped, have: []*Allocation{have("x", runtime.AllocationRunning, runtime.DesiredStop, true)}, room: free},
		"not wanted, ended":        {job: &stopped, have: []*Allocation{have("x", runtime.AllocationComplete, runtime.DesiredRun, true)}, room: free},
		"forgotten":                {have: []*Allocation{have("x", runtime.AllocationRunning, runtime.DesiredRun, true)}, room: free, stop: []runtime.AllocationID{"x"}},
	} {
		t.Run(name, func(t *testing.T) {
			p, short := reconcile(test.job, test.have, test.room)
			if (p.place != nil) != test.place || !slices.Equal(p.stop, test.stop) || len(short) != test.short {
				t.Errorf("%+v, %+v", p, short)
			}
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
			a, ok := Allocation{Status: from}.advance(to, "why", now)
			if ok != moves[fmt.Sprintf("%s %s", from, to)] {
				t.Errorf("%s → %s: %v", from, to, ok)
			}
			if ok && (a.Status != to || a.Message != "why" || to.Ended() == a.EndedAt.IsZero() || (to == runtime.AllocationRunning) == a.RunningAt.IsZero()) {
				t.Errorf("%s → %s: %+v", from, to, a)
			}
		}
		if a, ok := (Allocation{Status: from}).advance("NONSENSE", "", now); ok {
			t.Errorf("%s → %+v", from, a)
		}
	}
}

func TestEvaluationMovesForward(t *testing.T) {
	ended := []runtime.EvaluationStatus{runtime.EvaluationComplete, runtime.EvaluationFailed, runtime.EvaluationCancelled}
	for _, to := range ended {
		for _, from := range []runtime.EvaluationStatus{runtime.EvaluationPending, runtime.EvaluationBlocked} {
			if e, ok := (Evaluation{Status: from}).end(to, time.Now()); !ok || e.Status != to || e.EndedAt.IsZero() {
				t.Errorf("%s → %s: %+v", from, to, e)
			}
		}
		for _, from := range ended {
			if e, ok := (Evaluation{Status: from}).end(to, time.Now()); ok {
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
