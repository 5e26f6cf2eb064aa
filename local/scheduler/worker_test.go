package scheduler

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// restoring tests a running Scheduler after Restore, before Restored.
func restoring(t *testing.T, config Config, jobs []Job, allocations []Allocation, test func(t *testing.T, s *Scheduler)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, config)
		defer start(t, s)()
		if err := s.Restore(jobs, allocations); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		test(t, s)
	})
}

func TestRestore(t *testing.T) {
	jobs := []Job{job("claimed", "a", 50), job("unplaced", "a", 50), job("died", "a", 50), job("going", "b", 50)}
	jobs[3].Stopped = true
	allocations := []Allocation{
		{ID: "x1", Job: "claimed", Status: runtime.AllocationRunning, RunningAt: time.Now().Add(-time.Hour)},
		{ID: "x2", Job: "died", Status: runtime.AllocationRunning, RunningAt: time.Now().Add(-time.Hour)},
		{ID: "x3", Job: "going", Status: runtime.AllocationRunning, RunningAt: time.Now().Add(-time.Hour)},
	}
	restoring(t, Config{}, jobs, allocations, func(t *testing.T, s *Scheduler) {
		register(t, s, job("new", "b", 80))
		synctest.Wait()
		if got := s.Snapshot().Node().Used.MemoryMiB; got != 3*256 {
			t.Errorf("%d MiB are used", got)
		}
		if placed(s, "new") || placed(s, "unplaced") || s.Reason("new") != "runners of the last server are being restored" {
			t.Errorf("placed before Restored; reason %q", s.Reason("new"))
		}
		update(t, s, "x2", runtime.AllocationLost)
		time.Sleep(time.Second)
		began := time.Now()
		s.Restored()
		synctest.Wait()
		if time.Since(began) != 0 {
			t.Errorf("it took %v", time.Since(began))
		}
		if got := s.Stats(); got.Resubmitted == 0 || got.Placed != 2 || got.Nacked != 0 {
			t.Errorf("stats: %+v", got)
		}
		if a := allocation(t, s, "going"); a.Desired != runtime.DesiredStop {
			t.Errorf("the runner that was being removed: %+v", a)
		}
		if j, _ := s.Snapshot().Job("died"); j.Status != JobDead || len(s.Snapshot().Allocations(Filter{Job: "died"})) != 1 {
			t.Errorf("a runner that ran comes back empty: %+v", j)
		}
		checkUsed(t, s.Snapshot())
	})
}

func TestRestoreMayExceedCapacity(t *testing.T) {
	jobs := []Job{sized(job("a", "a", 50), 900), sized(job("b", "a", 50), 900)}
	allocations := []Allocation{{ID: "x", Job: "a", Status: runtime.AllocationRunning}, {ID: "y", Job: "b", Status: runtime.AllocationPending}}
	restoring(t, Config{}, jobs, allocations, func(t *testing.T, s *Scheduler) {
		s.Restored()
		register(t, s, job("c", "a", 50))
		synctest.Wait()
		if got := s.Reason("c"); got != "memory exhausted: 256 MiB wanted, 0 MiB free" {
			t.Errorf("reason %q", got)
		}
		end(t, s, "a")
		end(t, s, "b")
		synctest.Wait()
		if !placed(s, "c") {
			t.Error("c isn't placed")
		}
	})
}

func TestRestoreChecks(t *testing.T) {
	for name, test := range map[string]struct {
		jobs        []Job
		allocations []Allocation
		field       string
	}{
		"a job without an id":        {[]Job{job("", "a", 50)}, nil, "id"},
		"an unknown job":             {nil, []Allocation{{ID: "x", Job: "a", Status: runtime.AllocationRunning}}, "allocations.0"},
		"an allocation that's over":  {[]Job{job("a", "a", 50)}, []Allocation{{ID: "x", Job: "a", Status: runtime.AllocationLost}}, "allocations.0"},
		"an allocation without a id": {[]Job{job("a", "a", 50)}, []Allocation{{Job: "a", Status: runtime.AllocationRunning}}, "allocations.0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Config{})
			err := s.Restore(test.jobs, test.allocations)
			var typed *runtime.Error
			if !errors.As(err, &typed) || typed.Field != test.field || len(s.Snapshot().Jobs()) > 0 {
				t.Errorf("%v; %d jobs", err, len(s.Snapshot().Jobs()))
			}
		})
	}
}

// Two workers plan with the same room while no plan is applied: one is refused, and continues with
// the room that the other left.
func TestRefusedPlanIsRetried(t *testing.T) {
	restoring(t, Config{Workers: 2}, []Job{sized(job("a", "a", 50), 600), sized(job("b", "b", 50), 600)}, nil, func(t *testing.T, s *Scheduler) {
		s.Restored()
		synctest.Wait()
		got := s.Stats()
		if got.Refreshes() != 1 || got.PlansRefused != 1 || got.Placed != 1 || got.Depths.Blocked != 1 || got.Timings[runtime.EvaluationPlace][StepRefresh].Count() != 1 {
			t.Errorf("stats: %+v", got)
		}
		checkUsed(t, s.Snapshot())
	})
}

// An allocation that was lost before it ran is replaced; what is left of it is stopped even if a
// new one doesn't fit.
func TestPlanIsPartlyApplied(t *testing.T) {
	jobs := []Job{job("a", "a", 50), sized(job("never", "b", 50), 16)}
	allocations := []Allocation{{ID: "0-lost", Job: "a", Status: runtime.AllocationPending}, {ID: "0-never", Job: "never", Status: runtime.AllocationPending}}
	restoring(t, Config{}, jobs, allocations, func(t *testing.T, s *Scheduler) {
		update(t, s, "0-lost", runtime.AllocationLost)
		synctest.Wait() // a plan with a stop and a placement waits for the planner
		less := small
		less.MemoryMiB = 100
		if err := s.SetMachine(less); err != nil {
			t.Fatal(err)
		}
		s.Restored()
		synctest.Wait()
		if got := s.Stats(); got.PlansPartial != 1 || got.Depths.Blocked != 1 {
			t.Errorf("stats: %+v", got)
		}
		s.Deregister("never")
		update(t, s, "0-never", runtime.AllocationLost)
		synctest.Wait()
		if e := sole(t, s, Filter{Job: "never"}); e.Trigger != runtime.TriggerDeregister {
			t.Errorf("an unwanted runner has evaluations: %+v", e)
		}
		if a := s.Snapshot().allocation("0-lost"); a.Desired != runtime.DesiredStop {
			t.Errorf("not stopped: %+v", a)
		}
		if err := s.SetMachine(small); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if a := allocation(t, s, "a"); a.ID == "0-lost" || a.Desired != runtime.DesiredRun {
			t.Errorf("not placed again: %+v", a)
		}
		if e := s.Snapshot().Evaluations(Filter{Job: "a"}); e[len(e)-1].Trigger != runtime.TriggerAllocationLost {
			t.Errorf("evaluations: %+v", e)
		}
	})
}

func TestStaleStateIsGivenBack(t *testing.T) {
	run(t, Config{Workers: 1}, func(t *testing.T, s *Scheduler) {
		began := time.Now()
		e := evaluate(&Job{ID: "a", Environment: "a", Priority: 50}, runtime.TriggerRegister)
		e.ModifyIndex = s.Snapshot().index + 1
		s.broker.enqueue(e)
		time.Sleep(reachWithin - time.Millisecond)
		if got := s.Stats(); got.Nacked != 0 || got.Depths.Outstanding != 1 {
			t.Errorf("before its limit: %+v", got)
		}
		time.Sleep(2 * time.Millisecond)
		if got := s.Stats(); got.Nacked != 1 || got.Depths.Delayed != 1 {
			t.Errorf("after its limit: %+v", got)
		}
		register(t, s, job("b", "a", 50)) // the state advances
		for s.Stats().Acked < 2 {
			snap := s.Snapshot()
			if s.Stats().Acked < 2 {
				time.Sleep(time.Second)
			}
			if time.Since(began) > time.Minute {
				t.Fatalf("it isn't redelivered: %+v, %d", s.Stats(), snap.index)
			}
		}
	})
}

func TestShutdownGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{Workers: 2})
		stop := start(t, s)
		defer stop()
		if err := s.Restore([]Job{job("a", "a", 50), job("b", "a", 50), job("c", "a", 50)}, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := s.Stats().Depths; got.Outstanding != 2 {
			t.Fatalf("depths: %+v", got)
		}
		stop()
		got := s.Stats()
		if got.Nacked != 2 || got.Depths.Outstanding != 0 || got.Depths.Delayed != 2 || got.Depths.Ready[runtime.EvaluationPlace] != 1 {
			t.Errorf("stats: %+v", got)
		}
		register(t, s, job("late", "a", 50)) // it is registered, and nothing happens
		time.Sleep(time.Hour)
		if got := s.Stats(); got.Depths.Ready[runtime.EvaluationPlace] != 4 || got.Placed != 0 {
			t.Errorf("after the end: %+v", got)
		}
		if _, err := s.broker.dequeue(t.Context(), nil, time.Second, runtime.EvaluationPlace); !errors.Is(err, errDisabled) {
			t.Errorf("an evaluation is handed out after the end: %v", err)
		}
	})
}

// The planner ends with a plan in its queue: there is no result, which is an error, not a success.
func TestPlanWithoutResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlanner(newState(Node{}), func(delivery) bool { return true }, &stats{})
		if _, err := p.submit(t.Context(), plan{}); !errors.Is(err, errNoPlanning) {
			t.Errorf("disabled: %v", err)
		}
		p.enable()
		p.enable()
		ctx, cancel := context.WithCancel(t.Context())
		answered := make(chan error)
		go func() { _, err := p.submit(t.Context(), plan{}); answered <- err }()
		synctest.Wait()
		cancel()
		p.plansNoMore(ctx)
		if err := <-answered; !errors.Is(err, errNoResult) {
			t.Errorf("queued: %v", err)
		}
		if _, err := p.submit(t.Context(), plan{delivery: delivery{Evaluation: &Evaluation{}}}); !errors.Is(err, errNoResult) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// plansNoMore is a run that ends before it applies any plan.
func (p *planner) plansNoMore(ctx context.Context) {
	for len(p.plans) > 0 {
		<-p.plans
	}
	p.run(ctx)
}

func TestPlanOfAnotherHolderIsRefused(t *testing.T) {
	run(t, Config{}, func(t *testing.T, s *Scheduler) {
		e := evaluate(&Job{ID: "a"}, runtime.TriggerRegister)
		_, err := s.planner.submit(t.Context(), plan{delivery: delivery{Evaluation: e, token: 7}})
		if !errors.Is(err, errNotHeld) {
			t.Errorf("got %v", err)
		}
	})
}

// A worker that no longer holds an evaluation can't end it.
func TestFinishNeedsTheToken(t *testing.T) {
	s := open(t, Config{})
	fresh(t, s)
	register(t, s, job("a", "a", 50))
	d, err := s.broker.dequeue(t.Context(), nil, time.Minute, runtime.EvaluationPlace)
	if err != nil {
		t.Fatal(err)
	}
	s.broker.putBack(*d)
	for _, short := range [][]Shortage{nil, {{Dimension: Memory, Wanted: 1}}} {
		if err := s.finish(*d, short); !errors.Is(err, errNotHeld) {
			t.Errorf("finished: %v", err)
		}
	}
	if e := sole(t, s, Filter{}); e.Status != runtime.EvaluationPending {
		t.Errorf("then: %+v", e)
	}
}

// A cancelled evaluation doesn't block again.
func TestCancelledEvaluationDoesNotBlockAgain(t *testing.T) {
	s := open(t, Config{})
	fresh(t, s)
	register(t, s, job("a", "a", 50))
	d, err := s.broker.dequeue(t.Context(), nil, time.Minute, runtime.EvaluationPlace)
	if err != nil {
		t.Fatal(err)
	}
	s.cancel(d.Evaluation, "for the test")
	if err := s.finish(*d, []Shortage{{Dimension: Memory, Wanted: 1}}); err != nil || s.Stats().Depths.Blocked != 0 {
		t.Errorf("finished: %v", err)
	}
	if e := sole(t, s, Filter{}); e.Status != runtime.EvaluationCancelled || e.Reason != "for the test" {
		t.Errorf("then: %+v", e)
	}
}

// An evaluation is woken while a newer one of its job blocks in its place. It has nothing left to
// do: it isn't delivered again, and the newer one keeps waiting.
func TestWokenAndCancelledEvaluationIsDropped(t *testing.T) {
	for name, wanted := range map[string]int{"for the same reason": 2048, "for another": 1024} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Config{})
			fresh(t, s)
			handed := func(short int) {
				t.Helper()
				d, err := s.broker.dequeue(t.Context(), nil, time.Minute, runtime.EvaluationPlace)
				if err != nil || d == nil {
					t.Fatal(d, err)
				}
				if d.Priority == 60 {
					woken := sole(t, s, Filter{}.with(runtime.EvaluationBlocked))
					s.broker.enqueue(&woken)
				}
				if err := errors.Join(s.finish(*d, []Shortage{{Dimension: Memory, Wanted: short}}), s.broker.ack(*d)); err != nil {
					t.Error(err)
				}
			}
			large := sized(job("a", "a", 50), 2048) // it never fits
			register(t, s, large)
			handed(2048)
			large.Priority = 60
			register(t, s, large)
			handed(2048)
			waits := sole(t, s, Filter{}.with(runtime.EvaluationBlocked))
			handed(wanted)
			if e := sole(t, s, Filter{}.with(runtime.EvaluationBlocked)); e.ID != waits.ID {
				t.Errorf("%+v waits in place of %+v", e, waits)
			}
			if got := s.Stats().Depths; got.Blocked != 1 || got.Delayed != 0 {
				t.Errorf("depths: %+v", got)
			}
		})
	}
}

// A woken evaluation that doesn't fit blocks again. That is written only if its reason changed.
func TestReblock(t *testing.T) {
	run(t, Config{Workers: 1}, func(t *testing.T, s *Scheduler) {
		full := fill(t, s)
		register(t, s, job("a", "a", 50))
		synctest.Wait()
		before := sole(t, s, Filter{Job: "a", Status: string(runtime.EvaluationBlocked)})
		for i, want := range []struct {
			taken int // MiB taken by an urgent one, of the 256 that get free
			why   string
		}{{256, before.Reason}, {156, "memory exhausted: 256 MiB wanted, 100 MiB free"}} {
			if err := s.Pause(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // the worker is parked
			end(t, s, full[i])
			// It is woken, but another one is delivered first.
			urgent := sized(job("urgent-"+string(full[i]), "b", 90), want.taken)
			register(t, s, urgent)
			s.Resume()
			synctest.Wait()
			after := sole(t, s, Filter{Job: "a"}.with(runtime.EvaluationBlocked))
			if placed(s, "a") || !placed(s, urgent.ID) {
				t.Fatalf("%d: a: %v, urgent: %v", i, placed(s, "a"), placed(s, urgent.ID))
			}
			if after.ID != before.ID || after.Reason != want.why || (after.ModifyIndex != before.ModifyIndex) != (after.Reason != before.Reason) {
				t.Errorf("%d: %+v\nwas %+v", i, after, before)
			}
			if got := s.Stats().Reblocked; got != int64(i+1) {
				t.Errorf("reblocked %d times", got)
			}
			before = after
		}
	})
}

func (f Filter) with(status runtime.EvaluationStatus) Filter { f.Status = string(status); return f }

// The broker isn't enabled before Restore: at first that isn't logged.
func TestDequeueErrorsAreQuietAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		s := open(t, Config{Workers: 1, Logger: zap.New(core)})
		defer start(t, s)()
		time.Sleep(quietFor)
		if logs.Len() > 0 {
			t.Errorf("logged: %v", logs.All())
		}
		time.Sleep(2 * slowLimit)
		if logs.Len() == 0 || !strings.Contains(logs.All()[0].Message, "no evaluations") {
			t.Errorf("logged: %v", logs.All())
		}
		register(t, s, job("a", "a", 50))
		began := time.Now()
		fresh(t, s)
		if _, _, err := s.Orders(t.Context(), 0); err != nil || time.Since(began) != 0 {
			t.Errorf("placed after %v: %v", time.Since(began), err)
		}
	})
}

func TestBackoff(t *testing.T) {
	ms := func(all ...int) (d []time.Duration) {
		for _, n := range all {
			d = append(d, time.Duration(n)*time.Millisecond)
		}
		return d
	}
	s := &Scheduler{}
	w := s.newWorker(nil)
	for name, test := range map[string]struct {
		backoff *backoff.Backoff
		want    []time.Duration
	}{
		"dequeue":  {&w.dequeues, ms(20, 80, 320, 1280, 5120, 10_000, 10_000)},
		"errors":   {&w.errors, ms(20, 80, 320, 1000, 1000)},
		"resubmit": {&w.resubmits, ms(500, 2000, 8000, 10_000, 10_000)},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				var got []time.Duration
				for range test.want {
					got = append(got, test.backoff.Next())
				}
				if !slices.Equal(got, test.want) {
					t.Errorf("got %v, want %v", got, test.want)
				}
				test.backoff.Reset()
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		took := func(ctx context.Context, d time.Duration, early <-chan struct{}) time.Duration {
			began := time.Now()
			pause(ctx, d, early)
			return time.Since(began)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		early := make(chan struct{})
		close(early)
		if got := []time.Duration{took(t.Context(), time.Second, nil), took(ended, time.Second, nil), took(t.Context(), time.Second, early)}; !slices.Equal(got, ms(1000, 0, 0)) {
			t.Errorf("waited %v", got)
		}
	})
}
