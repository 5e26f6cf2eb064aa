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
	run(t, Config{}, func(t *testing.T, s *Scheduler) {
		began := time.Now()
		register(t, s, job("a", "env", runtime.PriorityRefill))
		orders, at, err := s.Orders(t.Context(), 0)
		if err != nil || len(orders) != 1 {
			t.Fatal(orders, err)
		}
		a := orders[0]
		if a.Job != "a" || a.Environment != "env" || a.Desired != runtime.DesiredRun || a.Status != runtime.AllocationPending || a.Resources != one {
			t.Errorf("ordered %+v", a)
		}
		synctest.Wait()
		e := sole(t, s, Filter{Job: "a"})
		if e.ID != a.Evaluation || e.Status != runtime.EvaluationComplete || e.Trigger != runtime.TriggerRegister || e.Queued != 0 ||
			e.SnapshotIndex < e.CreateIndex || !e.DequeuedAt.Equal(began) || !e.EndedAt.Equal(began) {
			t.Errorf("evaluation %+v", e)
		}
		time.Sleep(time.Second)
		update(t, s, a.ID, runtime.AllocationRunning)
		if j, _ := s.Snapshot().Job("a"); j.Status != JobRunning {
			t.Errorf("job %+v", j)
		}
		if !s.Deregister("a") {
			t.Error("nothing is said to be placed")
		}
		if orders, at, err = s.Orders(t.Context(), at); err != nil || len(orders) != 1 || orders[0].Desired != runtime.DesiredStop {
			t.Fatal(orders, err)
		}
		if used := s.Snapshot().Node().Used; used != one {
			t.Errorf("while it stops it takes %+v", used)
		}
		update(t, s, a.ID, runtime.AllocationComplete)
		if used := s.Snapshot().Node().Used; used != (runtime.Resources{}) {
			t.Errorf("then %+v is used", used)
		}
		if j, _ := s.Snapshot().Job("a"); j.Status != JobDead || j.EndedAt.IsZero() {
			t.Errorf("job %+v", j)
		}
		if s.Deregister("a") || s.Deregister("unknown") {
			t.Error("an ended runner is reported as placed")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if orders, _, err = s.Orders(ctx, at); err == nil {
			t.Errorf("ordered %+v", orders)
		}
		for _, e := range s.Snapshot().Evaluations(Filter{Job: "a"}) {
			if e.Status != runtime.EvaluationComplete {
				t.Errorf("left: %+v", e)
			}
		}
	})
}

// A runner whose allocation ended isn't placed again, nor one that is registered twice.
func TestOneAllocationPerJob(t *testing.T) {
	run(t, Config{}, func(t *testing.T, s *Scheduler) {
		for range 3 {
			register(t, s, job("a", "env", 50))
		}
		synctest.Wait()
		a := allocation(t, s, "a")
		update(t, s, a.ID, runtime.AllocationRunning)
		update(t, s, a.ID, runtime.AllocationPending) // a late report
		update(t, s, a.ID, runtime.AllocationFailed)
		update(t, s, a.ID, runtime.AllocationRunning)
		register(t, s, job("a", "env", 80))
		if s.Deregister("a") {
			t.Error("a failed runner is reported as placed")
		}
		synctest.Wait()
		sole(t, s, Filter{Job: "a"}) // nothing of that was work
		if all := s.Snapshot().Allocations(Filter{}); len(all) != 1 || all[0].Status != runtime.AllocationFailed {
			t.Errorf("allocations: %+v", all)
		}
		if err := s.Update("unknown", runtime.AllocationRunning, ""); runtime.CodeOf(err) != runtime.CodeRunnerGone {
			t.Errorf("update of an unknown one: %v", err)
		}
		checkUsed(t, s.Snapshot())
	})
}

func TestBlockedReportsReasonAndIsWoken(t *testing.T) {
	var hints int
	config := Config{Workers: 1, Changed: func(id runtime.EnvironmentID) {
		if id == "env" {
			hints++
		}
	}}
	run(t, config, func(t *testing.T, s *Scheduler) {
		full := fill(t, s)
		end(t, s, full[0])
		register(t, s, sized(job("small", "other", 50), 126), sized(job("a", "env", 50), 512))
		synctest.Wait()
		const why = "memory exhausted: 512 MiB wanted, 130 MiB free"
		if got := s.Reason("a"); got != why || s.Lacks("a") != (runtime.Resources{MemoryMiB: 382}) {
			t.Errorf("reason %q, want %q; lacks %+v", got, why, s.Lacks("a"))
		}
		first := sole(t, s, Filter{Job: "a", Status: string(runtime.EvaluationComplete)})
		blocked := sole(t, s, Filter{Job: "a", Status: string(runtime.EvaluationBlocked)})
		if blocked.Reason != why || blocked.Trigger != runtime.TriggerNoRoom || blocked.Previous != first.ID || first.Next != blocked.ID ||
			blocked.Queued != 1 || len(blocked.Shortages) != 1 || blocked.Shortages[0].Dimension != Memory {
			t.Errorf("blocked: %+v", blocked)
		}
		if got := s.Stats().Depths; got.Blocked != 1 || got.Lacking[Memory] != 1 || got.Lacking[CPU] != 0 {
			t.Errorf("depths: %+v", got)
		}
		if hints != 1 {
			t.Errorf("%d hints", hints)
		}
		end(t, s, full[1]) // 386 free: too little, so it isn't woken
		synctest.Wait()
		if got := s.Stats(); got.Unblocked != 0 || placed(s, "a") {
			t.Errorf("woken for too little: %+v", got)
		}
		end(t, s, full[2])
		synctest.Wait()
		if got := allocation(t, s, "a"); got.Evaluation != blocked.ID || s.Reason("a") != "" || s.Lacks("a") != (runtime.Resources{}) || hints != 2 {
			t.Errorf("placed: %+v, %q, %d hints", got, s.Reason("a"), hints)
		}
		if e := s.Snapshot().evaluation(blocked.ID); e.Status != runtime.EvaluationComplete || e.Reason != "" || e.Shortages != nil {
			t.Errorf("then: %+v", e)
		}
		checkUsed(t, s.Snapshot())
	})
}

func TestRoomForOneWakesOne(t *testing.T) {
	run(t, Config{}, func(t *testing.T, s *Scheduler) {
		full := fill(t, s)
		for i := range 1000 {
			register(t, s, job(fmt.Sprintf("w-%04d", i), "env", 50))
		}
		synctest.Wait()
		before := s.Stats()
		if before.Depths.Blocked != 1000 {
			t.Fatalf("blocked: %+v", before.Depths)
		}
		end(t, s, full[0])
		synctest.Wait()
		after := s.Stats()
		if woken, dequeued := after.Unblocked-before.Unblocked, after.Dequeued-before.Dequeued; woken != 1 || dequeued != 1 {
			t.Errorf("woken %d, dequeued %d", woken, dequeued)
		}
		if after.Depths.Blocked != 999 || !placed(s, "w-0000") {
			t.Errorf("then: %+v", after.Depths)
		}
		time.Sleep(time.Hour) // nothing is polled
		synctest.Wait()
		if later := s.Stats(); later.Dequeued-after.Dequeued != later.Timings[runtime.EvaluationCollect][StepAck].Count() {
			t.Errorf("%d evaluations were dequeued though nothing changed", later.Dequeued-after.Dequeued)
		}
	})
}

// orderOfPlacement frees room for one runner repeatedly, and returns which ones got it.
func orderOfPlacement(t *testing.T, s *Scheduler, first runtime.RunnerID, n int) (order []runtime.RunnerID) {
	t.Helper()
	after := s.Snapshot().index
	frees := first
	for range n {
		end(t, s, frees)
		orders, at, err := s.Orders(t.Context(), after)
		if err != nil || len(orders) != 1 {
			t.Fatal(orders, err)
		}
		after, frees = at, orders[0].Job
		order = append(order, frees)
	}
	return order
}

func TestNoEnvironmentStarvesAnother(t *testing.T) {
	t.Run("blocked", func(t *testing.T) {
		run(t, Config{}, func(t *testing.T, s *Scheduler) {
			full := fill(t, s)
			for i := range 1000 {
				register(t, s, job(fmt.Sprintf("a-%04d", i), "a", 50))
			}
			register(t, s, job("b", "b", 50))
			synctest.Wait()
			if order := orderOfPlacement(t, s, full[0], 5); !strings.Contains(fmt.Sprint(order), "b") {
				t.Errorf("b isn't among the first placements: %v", order)
			}
		})
	})
	t.Run("ready", func(t *testing.T) {
		big := runtime.Resources{CPUMHz: 1 << 30, MemoryMiB: 1 << 30, Processes: 1 << 30, WorkspaceMiB: 1 << 30}
		run(t, Config{Machine: big, Workers: 1}, func(t *testing.T, s *Scheduler) {
			if err := s.Pause(t.Context()); err != nil { // so that all are ready together
				t.Fatal(err)
			}
			for i := range 1000 {
				register(t, s, job(fmt.Sprintf("a-%04d", i), "a", 50))
			}
			register(t, s, job("b", "b", 50))
			s.Resume()
			synctest.Wait()
			before := 0
			for _, a := range s.Snapshot().Allocations(Filter{}) {
				if a.CreateIndex < allocation(t, s, "b").CreateIndex {
					before++
				}
			}
			if before >= 5 || len(s.Snapshot().Allocations(Filter{})) != 1001 {
				t.Errorf("b was placed after %d", before)
			}
		})
	})
}

func TestClaimsGoBeforeRefills(t *testing.T) {
	run(t, Config{}, func(t *testing.T, s *Scheduler) {
		full := fill(t, s)
		for i := range 10 {
			register(t, s, job(fmt.Sprintf("refill-%d", i), "a", runtime.PriorityRefill))
		}
		register(t, s, job("claim", "a", runtime.PriorityWaiting), job("raised", "a", runtime.PriorityRefill))
		synctest.Wait()
		register(t, s, job("raised", "a", runtime.PriorityWaiting))
		synctest.Wait()
		order := orderOfPlacement(t, s, full[0], 3)
		if got := fmt.Sprint(order); got != "[claim raised refill-0]" {
			t.Errorf("order: %v", got)
		}
		// The raised one waited in two evaluations, one after the other.
		if e := sole(t, s, Filter{Job: "raised", Status: string(runtime.EvaluationCancelled)}); e.Priority != runtime.PriorityRefill {
			t.Errorf("cancelled: %+v", e)
		}
	})
}

// A claim needs more room than is free: smaller refills must leave it that room.
func TestRefillsLeaveRoomToClaims(t *testing.T) {
	run(t, Config{}, func(t *testing.T, s *Scheduler) {
		full := fill(t, s)
		register(t, s, sized(job("claim", "a", runtime.PriorityWaiting), 512), sized(job("never", "a", runtime.PriorityWaiting), 4096))
		synctest.Wait()
		if got, want := s.Reason("never"), "memory exhausted: 4096 MiB wanted, the machine has only 1024 MiB for runners, so it can never fit: lower this limit of the environment"; got != want || s.Lacks("never") != (runtime.Resources{}) {
			t.Errorf("reason %q, want %q; lacks %+v", got, want, s.Lacks("never"))
		}
		end(t, s, full[0])
		register(t, s, job("refill", "b", runtime.PriorityRefill))
		synctest.Wait()
		if placed(s, "refill") || s.Reason("refill") != "memory exhausted: 256 MiB wanted, 0 MiB free, and 512 MiB kept for runners that go first" {
			t.Errorf("the refill: placed %v, %q", placed(s, "refill"), s.Reason("refill"))
		}
		register(t, s, job("claim-2", "b", runtime.PriorityWaiting)) // same priority: it doesn't wait for one that never fits
		synctest.Wait()
		if !placed(s, "claim-2") {
			t.Errorf("the second claim: %q", s.Reason("claim-2"))
		}
		end(t, s, full[1])
		s.Deregister("claim") // the claim was cancelled
		synctest.Wait()
		if !placed(s, "refill") {
			t.Errorf("the refill still waits: %q", s.Reason("refill"))
		}
		if e := sole(t, s, Filter{Job: "claim", Status: string(runtime.EvaluationCancelled)}); e.Trigger != runtime.TriggerNoRoom {
			t.Errorf("the claim's: %+v", e)
		}
	})
}

// A runner that no claim waits for now is an ordinary refill, and no room is kept for it.
func TestRefillThatNoClaimWaitsForAnyMore(t *testing.T) {
	run(t, Config{}, func(t *testing.T, s *Scheduler) {
		full := fill(t, s)
		large := sized(job("large", "a", runtime.PriorityWaiting), 512)
		register(t, s, large)
		synctest.Wait()
		end(t, s, full[0])
		register(t, s, job("refill", "b", runtime.PriorityRefill))
		synctest.Wait()
		if placed(s, "refill") {
			t.Error("it took the room that is kept for the claim")
		}
		large.Priority = runtime.PriorityRefill
		register(t, s, large)
		synctest.Wait()
		if !placed(s, "refill") {
			t.Errorf("it still waits: %q", s.Reason("refill"))
		}
		end(t, s, full[1])
		end(t, s, full[2])
		synctest.Wait()
		if !placed(s, "large") {
			t.Errorf("the other one is forgotten: %q", s.Reason("large"))
		}
		if e := s.Snapshot().Evaluations(Filter{Status: string(runtime.EvaluationBlocked)}); len(e) > 0 {
			t.Errorf("still blocked: %+v", e)
		}
	})
}

func TestMachineChanges(t *testing.T) {
	run(t, Config{}, func(t *testing.T, s *Scheduler) {
		fill(t, s)
		register(t, s, job("a", "a", 50), job("b", "a", 50))
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
			t.Errorf("nothing: %v", err)
		}
	})
}

// A draining machine places nothing; stops continue.
func TestPauseStopsPlacementsOnly(t *testing.T) {
	run(t, Config{}, func(t *testing.T, s *Scheduler) {
		full := fill(t, s)
		end(t, s, full[0])
		if err := s.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		register(t, s, job("a", "a", 80), job("never", "a", 80))
		s.Deregister(full[1])
		s.Deregister("never") // before it was evaluated
		time.Sleep(time.Minute)
		if placed(s, "a") || s.Reason("a") != "the machine is being drained" || s.Lacks("a") != (runtime.Resources{}) {
			t.Errorf("placed %v, %q", placed(s, "a"), s.Reason("a"))
		}
		if a := allocation(t, s, full[1]); a.Desired != runtime.DesiredStop {
			t.Errorf("not stopped: %+v", a)
		}
		if j, _ := s.Snapshot().Job("never"); j.Status != JobDead {
			t.Errorf("never wanted any more: %+v", j)
		}
		s.Resume()
		synctest.Wait()
		if !placed(s, "a") || placed(s, "never") {
			t.Error("a queued runner isn't placed, or an unwanted one is")
		}
	})
}

// A busy worker finishes its evaluation first.
func TestPauseWaitsForWorkers(t *testing.T) {
	restoring(t, Config{}, []Job{job("a", "a", 50)}, nil, func(t *testing.T, s *Scheduler) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Pause(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a worker at work: %v", err)
		}
		time.AfterFunc(time.Second, s.Restored)
		if err := s.Pause(t.Context()); err != nil || !placed(s, "a") {
			t.Errorf("then: %v; placed: %v", err, placed(s, "a"))
		}
	})
}

func TestCollect(t *testing.T) {
	config := Config{Collect: Collect{Every: time.Minute, Evaluations: 10 * time.Minute, Runners: 20 * time.Minute}}
	run(t, config, func(t *testing.T, s *Scheduler) {
		full := fill(t, s)
		register(t, s, job("blocked", "a", 50))
		s.Deregister(full[0])
		synctest.Wait()
		end(t, s, full[0])
		synctest.Wait()
		ended := len(s.Snapshot().Evaluations(Filter{Job: full[0]}))
		count := func() (evaluations, allocations, jobs int) {
			snap := s.Snapshot()
			return len(snap.Evaluations(Filter{Job: full[0]})), len(snap.Allocations(Filter{Job: full[0]})), len(snap.Jobs())
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
		if all := s.Snapshot().Evaluations(Filter{Status: string(runtime.EvaluationComplete)}); len(all) > 10 {
			t.Errorf("%d collections are remembered", len(all))
		}
		if !placed(s, "blocked") || s.Stats().Collected == 0 {
			t.Error("a live row was collected")
		}
		checkUsed(t, s.Snapshot())
	})
}

func TestStatsHaveTimings(t *testing.T) {
	run(t, Config{}, func(t *testing.T, s *Scheduler) {
		fill(t, s)
		got := s.Stats()
		for _, step := range []Step{StepWait, StepSchedule, StepPlan, StepUpdate, StepAck} {
			if took := got.Timings[runtime.EvaluationPlace][step]; took.Count() < 4 {
				t.Errorf("%s: %+v", step, took)
			}
		}
		if len(got.Timings[runtime.EvaluationStop]) > 0 || got.Placed != 4 || got.PlansApplied != 4 || got.Acked != 4 || got.Enqueued != 4 {
			t.Errorf("stats: %+v", got)
		}
	})
}

func TestTimingsAreInBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStats()
		for _, took := range []time.Duration{10 * time.Microsecond, 3 * time.Millisecond, 5 * time.Millisecond, time.Minute} {
			s.observe(runtime.EvaluationStop, StepPlan, time.Now().Add(-took))
		}
		got := s.read().Timings[runtime.EvaluationStop][StepPlan]
		want := []int64{0: 1, 5: 2, 9: 1}
		if !slices.Equal(got.Counts, want) || got.Count() != 4 || got.Sum != time.Minute+8010*time.Microsecond {
			t.Errorf("%+v", got)
		}
	})
}
