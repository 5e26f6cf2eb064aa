package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

func TestLifeOfAnAllocation(t *testing.T) {
	run(t, Config{}, func(t *testing.T, s *bed) {
		began := time.Now()
		register(t, s, wish("a", "env", runtime.PriorityRefill))
		a := <-s.placements
		if a.RunnerID != "a" || a.EnvironmentID != "env" || a.Desired != runtime.DesiredRun || a.Status != runtime.AllocationPending || a.Resources != one {
			t.Errorf("placed %+v", a)
		}
		synctest.Wait()
		e := sole(t, s, Filter{Job: "a"})
		if e.ID != a.EvaluationID || e.Status != runtime.EvaluationComplete || e.Trigger != runtime.TriggerRegister || e.Queued != 0 ||
			!e.DequeuedAt.Equal(began) || !e.EndedAt.Equal(began) {
			t.Errorf("evaluation %+v", e)
		}
		time.Sleep(time.Second)
		s.Update("a", runtime.AllocationRunning, "")
		if a := allocation(t, s, "a"); a.Status != runtime.AllocationRunning || !a.RunningAt.Equal(time.Now()) {
			t.Errorf("it runs: %+v", a)
		}
		s.Deregister("a")
		if a := allocation(t, s, "a"); a.Desired != runtime.DesiredStop || a.Status != runtime.AllocationRunning {
			t.Errorf("it is deregistered: %+v", a)
		}
		stop := s.find(Filter{Job: "a"})[0]
		if took, ok := stop.Worked(); stop.Type != runtime.EvaluationStop || stop.Trigger != runtime.TriggerDeregister || stop.Status != runtime.EvaluationComplete || stop.Priority != 100 || !ok || took != 0 {
			t.Errorf("its last evaluation: %+v", stop)
		}
		if used := s.Node().Used; used != one {
			t.Errorf("while it stops it takes %+v, want %+v", used, one)
		}
		s.Update("a", runtime.AllocationComplete, "")
		if used := s.Node().Used; used != (runtime.Resources{}) {
			t.Errorf("then %+v is used", used)
		}
		if j := s.state("a"); j.unplaced() || j.endedAt.IsZero() {
			t.Errorf("job %+v", j)
		}
		s.Deregister("a")
		s.Deregister("unknown")
		s.Update("unknown", runtime.AllocationRunning, "")
		time.Sleep(time.Hour / 60)
		if len(s.placements) > 0 || len(s.allocated("")) != 1 {
			t.Errorf("allocations: %+v", s.allocated(""))
		}
		for _, e := range s.find(Filter{Job: "a"}) {
			if e.Status != runtime.EvaluationComplete {
				t.Errorf("left: %+v", e)
			}
		}
	})
}

// A runner whose allocation ended isn't placed again, nor one that is registered twice.
func TestOneAllocationPerJob(t *testing.T) {
	run(t, Config{}, func(t *testing.T, s *bed) {
		for range 3 {
			register(t, s, wish("a", "env", 50))
		}
		synctest.Wait()
		s.Update("a", runtime.AllocationRunning, "")
		s.Update("a", runtime.AllocationPending, "") // a late report
		s.Update("a", runtime.AllocationFailed, "why")
		s.Update("a", runtime.AllocationRunning, "")
		register(t, s, wish("a", "env", 80))
		s.Deregister("a")
		synctest.Wait()
		sole(t, s, Filter{Job: "a"}) // nothing of that was work
		if all := s.allocated(""); len(all) != 1 || all[0].Status != runtime.AllocationFailed || all[0].Message != "why" {
			t.Errorf("allocations: %+v", all)
		}
		checkUsed(t, s)
	})
}

func TestBlockedReportsReasonAndIsWoken(t *testing.T) {
	var hints int
	config := Config{Workers: 1, Changed: func(id runtime.EnvironmentID) {
		if id == "env" {
			hints++
		}
	}}
	run(t, config, func(t *testing.T, s *bed) {
		full := fill(t, s)
		s.end(full[0])
		register(t, s, sized(wish("small", "other", 50), 126), sized(wish("a", "env", 50), 512))
		synctest.Wait()
		const why = "memory exhausted: 512 MiB wanted, 130 MiB free"
		if got := s.reason("a"); got != why || s.lacks("a") != (runtime.Resources{MemoryMiB: 382}) {
			t.Errorf("reason %q, want %q; lacks %+v", got, why, s.lacks("a"))
		}
		first := sole(t, s, Filter{Job: "a", Status: string(runtime.EvaluationComplete)})
		blocked := sole(t, s, Filter{Job: "a", Status: string(runtime.EvaluationBlocked)})
		if blocked.Reason != why || blocked.Trigger != runtime.TriggerNoRoom || blocked.PreviousID != first.ID || first.NextID != blocked.ID ||
			blocked.Queued != 1 || len(blocked.Shortages) != 1 || blocked.Shortages[0].Dimension != runtime.DimensionMemory {
			t.Errorf("blocked: %+v", blocked)
		}
		if got := s.Stats().Depths; got.Blocked != 1 || got.Lacking[runtime.DimensionMemory] != 1 || got.Lacking[runtime.DimensionCPU] != 0 {
			t.Errorf("depths: %+v", got)
		}
		if hints != 1 {
			t.Errorf("%d hints, want 1", hints)
		}
		s.end(full[1]) // 386 free: too little, so it isn't woken
		synctest.Wait()
		if got := s.Stats(); got.Unblocked != 0 || s.placed("a") {
			t.Errorf("woken for too little: %+v", got)
		}
		s.end(full[2])
		synctest.Wait()
		if got := allocation(t, s, "a"); got.EvaluationID != blocked.ID || s.reason("a") != "" || s.lacks("a") != (runtime.Resources{}) || hints != 2 {
			t.Errorf("placed: %+v, %q, %d hints", got, s.reason("a"), hints)
		}
		if e := s.find(Filter{Job: "a"})[0]; e.ID != blocked.ID || e.Status != runtime.EvaluationComplete || e.Reason != "" || e.Shortages != nil {
			t.Errorf("then: %+v", e)
		}
		checkUsed(t, s)
	})
}

func TestRoomForOneWakesOne(t *testing.T) {
	run(t, Config{}, func(t *testing.T, s *bed) {
		full := fill(t, s)
		for i := range 1000 {
			register(t, s, wish(fmt.Sprintf("w-%04d", i), "env", 50))
		}
		synctest.Wait()
		before := s.Stats()
		if before.Depths.Blocked != 1000 {
			t.Fatalf("blocked: %+v", before.Depths)
		}
		s.end(full[0])
		synctest.Wait()
		after := s.Stats()
		if woken, dequeued := after.Unblocked-before.Unblocked, after.Dequeued-before.Dequeued; woken != 1 || dequeued != 1 {
			t.Errorf("woken %d, dequeued %d", woken, dequeued)
		}
		if after.Depths.Blocked != 999 || !s.placed("w-0000") {
			t.Errorf("then: %+v", after.Depths)
		}
		time.Sleep(time.Hour) // nothing is polled
		synctest.Wait()
		if later := s.Stats(); later.Dequeued != after.Dequeued {
			t.Errorf("%d evaluations were dequeued though nothing changed", later.Dequeued-after.Dequeued)
		}
	})
}

// orderOfPlacement frees room for one runner repeatedly, and returns which ones got it.
func orderOfPlacement(t *testing.T, s *bed, first runtime.RunnerID, n int) (order []runtime.RunnerID) {
	t.Helper()
	for frees := first; len(order) < n; order = append(order, frees) {
		s.end(frees)
		frees = (<-s.placements).RunnerID
	}
	return order
}

func TestNoEnvironmentStarvesAnother(t *testing.T) {
	t.Run("blocked", func(t *testing.T) {
		run(t, Config{}, func(t *testing.T, s *bed) {
			full := fill(t, s)
			for i := range 1000 {
				register(t, s, wish(fmt.Sprintf("a-%04d", i), "a", 50))
			}
			register(t, s, wish("b", "b", 50))
			synctest.Wait()
			if order := orderOfPlacement(t, s, full[0], 5); !strings.Contains(fmt.Sprint(order), "b") {
				t.Errorf("b isn't among the first placements: %v", order)
			}
		})
	})
	t.Run("ready", func(t *testing.T) {
		big := runtime.Resources{CPUMHz: 1 << 30, MemoryMiB: 1 << 30, Processes: 1 << 30, WorkspaceMiB: 1 << 30}
		run(t, Config{Machine: big, Workers: 1}, func(t *testing.T, s *bed) {
			if err := s.Pause(t.Context()); err != nil { // so that all are ready together
				t.Fatal(err)
			}
			for i := range 1000 {
				register(t, s, wish(fmt.Sprintf("a-%04d", i), "a", 50))
			}
			register(t, s, wish("b", "b", 50))
			s.Resume()
			synctest.Wait()
			before := 0
			for a := <-s.placements; a.RunnerID != "b"; a = <-s.placements {
				before++
			}
			if before >= 5 || len(s.allocated("")) != 1001 {
				t.Errorf("b was placed after %d", before)
			}
		})
	})
}

func TestClaimsGoBeforeRefills(t *testing.T) {
	run(t, Config{}, func(t *testing.T, s *bed) {
		full := fill(t, s)
		for i := range 10 {
			register(t, s, wish(fmt.Sprintf("refill-%d", i), "a", runtime.PriorityRefill))
		}
		register(t, s, wish("claim", "a", runtime.PriorityWaiting), wish("raised", "a", runtime.PriorityRefill))
		synctest.Wait()
		register(t, s, wish("raised", "a", runtime.PriorityWaiting))
		synctest.Wait()
		order := orderOfPlacement(t, s, full[0], 3)
		if got := fmt.Sprint(order); got != "[claim raised refill-0]" {
			t.Errorf("order: got %v, want [claim raised refill-0]", got)
		}
		// The raised one waited in two evaluations, one after the other.
		if e := sole(t, s, Filter{Job: "raised", Status: string(runtime.EvaluationCancelled)}); e.Priority != int(runtime.PriorityRefill) {
			t.Errorf("cancelled: %+v", e)
		}
	})
}

// A claim needs more room than is free: smaller refills must leave it that room.
func TestRefillsLeaveRoomToClaims(t *testing.T) {
	run(t, Config{}, func(t *testing.T, s *bed) {
		full := fill(t, s)
		register(t, s, sized(wish("claim", "a", runtime.PriorityWaiting), 512), sized(wish("never", "a", runtime.PriorityWaiting), 4096))
		synctest.Wait()
		if got, want := s.reason("never"), "memory exhausted: 4096 MiB wanted, the machine has only 1024 MiB for runners, so it can never fit: lower this limit of the environment"; got != want || s.lacks("never") != (runtime.Resources{}) {
			t.Errorf("reason %q, want %q; lacks %+v", got, want, s.lacks("never"))
		}
		s.end(full[0])
		register(t, s, wish("refill", "b", runtime.PriorityRefill))
		synctest.Wait()
		if s.placed("refill") || s.reason("refill") != "memory exhausted: 256 MiB wanted, 0 MiB free, and 512 MiB kept for runners that go first" {
			t.Errorf("the refill: placed %v, %q", s.placed("refill"), s.reason("refill"))
		}
		register(t, s, wish("claim-2", "b", runtime.PriorityWaiting)) // same priority: it doesn't wait for one that never fits
		synctest.Wait()
		if !s.placed("claim-2") {
			t.Errorf("the second claim: %q", s.reason("claim-2"))
		}
		s.end(full[1])
		s.Deregister("claim") // the claim was cancelled
		synctest.Wait()
		if !s.placed("refill") {
			t.Errorf("the refill still waits: %q", s.reason("refill"))
		}
		if e := sole(t, s, Filter{Job: "claim", Status: string(runtime.EvaluationCancelled)}); e.Trigger != runtime.TriggerNoRoom {
			t.Errorf("the claim's: %+v", e)
		}
	})
}

// A runner that no claim waits for now is an ordinary refill, and no room is kept for it.
func TestRefillThatNoClaimWaitsForAnyMore(t *testing.T) {
	run(t, Config{}, func(t *testing.T, s *bed) {
		full := fill(t, s)
		large := sized(wish("large", "a", runtime.PriorityWaiting), 512)
		register(t, s, large)
		synctest.Wait()
		s.end(full[0])
		register(t, s, wish("refill", "b", runtime.PriorityRefill))
		synctest.Wait()
		if s.placed("refill") {
			t.Error("it took the room that is kept for the claim")
		}
		large.Priority = runtime.PriorityRefill
		register(t, s, large)
		synctest.Wait()
		if !s.placed("refill") {
			t.Errorf("it still waits: %q", s.reason("refill"))
		}
		s.end(full[1])
		s.end(full[2])
		synctest.Wait()
		if !s.placed("large") {
			t.Errorf("the other one is forgotten: %q", s.reason("large"))
		}
		if e := s.find(Filter{Status: string(runtime.EvaluationBlocked)}); len(e) > 0 {
			t.Errorf("still blocked: %+v", e)
		}
	})
}

func TestMachineChanges(t *testing.T) {
	run(t, Config{}, func(t *testing.T, s *bed) {
		fill(t, s)
		register(t, s, wish("a", "a", 50), wish("b", "a", 50))
		synctest.Wait()
		less, more := small, small
		less.MemoryMiB, more.MemoryMiB = 512, 1024+256
		for _, step := range []struct {
			machine      runtime.Resources
			live, waking int64
		}{{less, 4, 0}, {more, 5, 1}} {
			if err := s.SetMachine(step.machine); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := s.Stats(); got.Placed != step.live || got.Unblocked != step.waking {
				t.Errorf("with %d MiB: %+v", step.machine.MemoryMiB, got)
			}
		}
		if err := s.SetMachine(runtime.Resources{}); runtime.CodeOf(err) != runtime.CodeInvalidInput {
			t.Errorf("nothing: got %v, want INVALID_INPUT", err)
		}
	})
}

// A draining machine places nothing; stops continue.
func TestPauseStopsPlacementsOnly(t *testing.T) {
	run(t, Config{}, func(t *testing.T, s *bed) {
		full := fill(t, s)
		s.end(full[0])
		if err := s.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		register(t, s, wish("a", "a", 80), wish("never", "a", 80))
		s.Deregister(full[1])
		s.Deregister("never") // before it was evaluated
		time.Sleep(time.Minute)
		if s.placed("a") || s.reason("a") != "the machine is being drained" || s.lacks("a") != (runtime.Resources{}) {
			t.Errorf("placed %v, %q", s.placed("a"), s.reason("a"))
		}
		if a := allocation(t, s, full[1]); a.Desired != runtime.DesiredStop {
			t.Errorf("not stopped: %+v", a)
		}
		if j := s.state("never"); j.endedAt.IsZero() {
			t.Errorf("never wanted any more: %+v", j)
		}
		s.Resume()
		synctest.Wait()
		if !s.placed("a") || s.placed("never") {
			t.Error("a queued runner isn't placed, or an unwanted one is")
		}
	})
}

// A busy worker finishes its evaluation first, which ends with Placed.
func TestPauseWaitsForWorkers(t *testing.T) {
	finish := make(chan struct{})
	run(t, Config{Placed: func(runtime.Allocation) { <-finish }}, func(t *testing.T, s *bed) {
		finish = make(chan struct{}) // of this bubble
		register(t, s, wish("a", "a", 50))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Pause(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a worker at work: got %v, want %v", err, context.DeadlineExceeded)
		}
		began := time.Now()
		time.AfterFunc(time.Second, func() { close(finish) })
		if err := s.Pause(t.Context()); err != nil || !s.placed("a") || time.Since(began) != time.Second {
			t.Errorf("then: %v after %v; placed: %v", err, time.Since(began), s.placed("a"))
		}
	})
}

func TestCollect(t *testing.T) {
	config := Config{Collect: Collect{Every: time.Minute, Evaluations: 10 * time.Minute, Runners: 20 * time.Minute}}
	run(t, config, func(t *testing.T, s *bed) {
		full := fill(t, s)
		register(t, s, wish("blocked", "a", 50))
		s.Deregister(full[0])
		synctest.Wait()
		s.end(full[0])
		synctest.Wait()
		ended := len(s.find(Filter{Job: full[0]}))
		count := func() (evaluations, allocations, jobs int) {
			s.mu.Lock()
			jobs = len(s.jobs)
			s.mu.Unlock()
			return len(s.find(Filter{Job: full[0]})), len(s.allocated(full[0])), jobs
		}
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		if e, a, j := count(); e != ended || a != 1 || j != 5 {
			t.Errorf("after 9 minutes %d evaluations, %d allocations and %d jobs", e, a, j)
		}
		time.Sleep(2 * time.Minute)
		if e, a, j := count(); e != 0 || a != 1 || j != 5 {
			t.Errorf("after 11 minutes %d evaluations, %d allocations and %d jobs", e, a, j)
		}
		time.Sleep(10 * time.Minute)
		if e, a, j := count(); e != 0 || a != 0 || j != 4 {
			t.Errorf("after 21 minutes %d evaluations, %d allocations and %d jobs", e, a, j)
		}
		if all := s.find(Filter{Status: string(runtime.EvaluationComplete)}); len(all) > 10 {
			t.Errorf("%d collections are remembered", len(all))
		}
		if !s.placed("blocked") || s.Stats().Collected == 0 {
			t.Error("a live row was collected")
		}
		checkUsed(t, s)
	})
}

func TestStatsHaveTimings(t *testing.T) {
	run(t, Config{}, func(t *testing.T, s *bed) {
		fill(t, s)
		got := s.Stats()
		for _, step := range []Step{StepSchedule, StepPlan, StepAck} {
			if took := got.Timings[step]; took.Count() < 4 {
				t.Errorf("%s: %+v", step, took)
			}
		}
		if got.Placed != 4 || got.PlansApplied != 4 || got.Acked != 4 || got.Enqueued != 4 {
			t.Errorf("stats: %+v", got)
		}
	})
}

func TestTimingsAreInBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTimings()
		for _, took := range []time.Duration{10 * time.Microsecond, 3 * time.Millisecond, 5 * time.Millisecond, time.Minute} {
			s.observe(StepPlan, time.Now().Add(-took))
		}
		got := s[StepPlan].Read()
		want := []int64{0: 1, 5: 2, 9: 1}
		if !slices.Equal(got.Counts, want) || got.Count() != 4 || got.Sum != time.Minute+8010*time.Microsecond {
			t.Errorf("%+v", got)
		}
	})
}
