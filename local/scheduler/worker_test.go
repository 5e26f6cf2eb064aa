package scheduler

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// restored tests a running Scheduler that restored runners: those with an allocation by its status,
// the others with "".
func restored(t *testing.T, config Config, jobs []Job, had map[runtime.RunnerID]runtime.AllocationStatus, test func(t *testing.T, s *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, config)
		for _, j := range jobs {
			s.Restore(j, had[j.ID])
		}
		defer start(s)()
		test(t, s)
	})
}

func TestRestore(t *testing.T) {
	jobs := []Job{wish("claimed", "a", 50), wish("unplaced", "a", 50), wish("died", "a", 50)}
	had := map[runtime.RunnerID]runtime.AllocationStatus{"claimed": runtime.AllocationRunning, "died": runtime.AllocationRunning}
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{})
		for _, j := range jobs {
			s.Restore(j, had[j.ID])
		}
		register(t, s, wish("new", "b", 80))
		time.Sleep(time.Hour)
		if got := s.Node().Used.MemoryMiB; got != 2*256 || s.placed("new") || s.placed("unplaced") {
			t.Errorf("before Run %d MiB are used: %+v", got, s.allocated(""))
		}
		s.Deregister("died")
		s.Update("died", runtime.AllocationLost, "it died")
		began := time.Now()
		defer start(s)()
		synctest.Wait()
		if got := s.Stats(); time.Since(began) != 0 || got.Placed != 2 || got.Nacked != 0 {
			t.Errorf("after %v: %+v", time.Since(began), got)
		}
		if e := sole(t, s, Filter{Job: "unplaced"}); e.Trigger != runtime.TriggerRestore {
			t.Errorf("evaluation %+v", e)
		}
		if a := allocation(t, s, "died"); a.Status != runtime.AllocationLost || len(s.allocated("died")) != 1 {
			t.Errorf("a runner that ran comes back empty: %+v", s.allocated("died"))
		}
		checkUsed(t, s)
	})
}

func TestRestoreMayExceedCapacity(t *testing.T) {
	jobs := []Job{sized(wish("a", "a", 50), 900), sized(wish("b", "a", 50), 900)}
	had := map[runtime.RunnerID]runtime.AllocationStatus{"a": runtime.AllocationRunning, "b": runtime.AllocationPending}
	restored(t, Config{}, jobs, had, func(t *testing.T, s *bed) {
		register(t, s, wish("c", "a", 50))
		synctest.Wait()
		if got := s.reason("c"); got != "memory exhausted: 256 MiB wanted, 0 MiB free" {
			t.Errorf("reason %q, want \"memory exhausted: 256 MiB wanted, 0 MiB free\"", got)
		}
		s.end("a")
		s.end("b")
		synctest.Wait()
		if !s.placed("c") {
			t.Error("c isn't placed")
		}
	})
}

// Two workers plan with the same room: one is refused, and continues with the room that the other
// left.
func TestRefusedPlanIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{})
		register(t, s, sized(wish("a", "a", 50), 600), sized(wish("b", "b", 50), 600))
		a, b := s.next(t), s.next(t)
		first, second := s.plan(a), s.plan(b)
		if done, placed := s.apply(a, first); !done || placed == nil || placed.RunnerID != "a" {
			t.Errorf("the first: %v, %+v", done, placed)
		}
		if done, placed := s.apply(b, second); done || placed != nil {
			t.Errorf("the second: %v, %+v", done, placed)
		}
		s.process(b)
		if got := s.Stats(); got.PlansRefused != 1 || got.Placed != 1 || got.Depths.Blocked != 1 {
			t.Errorf("stats: %+v", got)
		}
		s.acked(a)
		checkUsed(t, s)
	})
}

// A plan of a runner that was deregistered meanwhile isn't applied.
func TestPlanOfAnUnwantedRunnerIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{})
		register(t, s, wish("a", "a", 50))
		d := s.next(t)
		p := s.plan(d)
		s.Deregister("a")
		if done, placed := s.apply(d, p); done || placed != nil {
			t.Errorf("applied: %v, %+v", done, placed)
		}
		s.process(d)
		if d := s.Stats().Depths; s.placed("a") || d.Outstanding != 0 || d.Blocked != 0 {
			t.Errorf("depths: %+v", d)
		}
	})
}

// After the end, runners can be registered, and nothing happens. Nothing is lost either.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{Workers: 2})
		stop := start(s)
		synctest.Wait()
		stop()
		register(t, s, wish("late", "a", 50))
		time.Sleep(time.Hour)
		if got := s.Stats(); got.Depths.Ready != 1 || got.Depths.Outstanding != 0 || got.Placed != 0 {
			t.Errorf("after the end: %+v", got)
		}
	})
}

// A worker that no longer holds an evaluation can't place its runner, nor end it.
func TestApplyNeedsTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{})
		register(t, s, wish("a", "a", 50))
		d := s.next(t)
		s.giveBack(d)
		for _, p := range []plan{{}, {place: true}, {short: []runtime.Shortage{{Dimension: runtime.DimensionMemory, Wanted: 1}}}} {
			if done, placed := s.apply(d, p); !done || placed != nil {
				t.Errorf("%+v is applied: %v, %+v", p, done, placed)
			}
		}
		if e := sole(t, s, Filter{}); e.Status != runtime.EvaluationPending || s.placed("a") {
			t.Errorf("then: %+v", e)
		}
	})
}

// A worker that takes too long loses its evaluation. The runner isn't placed twice.
func TestStuckWorkerLosesItsEvaluation(t *testing.T) {
	var calls int
	config := Config{Workers: 2, Placed: func(runtime.Allocation) {
		if calls++; calls == 1 {
			time.Sleep(2 * nackAfter)
		}
	}}
	run(t, config, func(t *testing.T, s *bed) {
		register(t, s, wish("a", "a", 50))
		time.Sleep(nackAfter + time.Minute)
		if got := s.Stats(); got.NackTimeouts != 1 || got.Acked != 1 || got.Dequeued != 2 || got.Placed != 1 || len(s.allocated("a")) != 1 {
			t.Errorf("stats: %+v", got)
		}
		time.Sleep(nackAfter)
		if got := s.Stats(); got.Acked != 1 || got.Depths.Outstanding != 0 {
			t.Errorf("at the end: %+v", got)
		}
	})
}

// A newer evaluation of a job replaces one that waits for room, and waits in its place. That holds
// also while a worker has the older one.
func TestNewerEvaluationWaitsInPlaceOfTheOlder(t *testing.T) {
	short := []runtime.Shortage{{Dimension: runtime.DimensionMemory, Wanted: 2048, Capacity: 1024}}
	for name, held := range map[string]bool{"it sleeps": false, "a worker has it": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := open(t, Config{})
				large := sized(wish("a", "a", 50), 900)
				register(t, s, wish("b", "b", 50), large)
				b, a := s.next(t), s.next(t)
				if a.RunnerID != "a" {
					a, b = b, a
				}
				if done, placed := s.apply(b, s.plan(b)); !done || placed == nil {
					t.Fatal("b isn't placed")
				}
				s.acked(b)
				s.finish(t, a, short)
				waits := sole(t, s, Filter{Job: "a"}.with(runtime.EvaluationBlocked))
				var woken delivery
				if held {
					s.end("b")
					woken = s.next(t)
				}
				large.Priority = 60
				register(t, s, large)
				if held {
					s.finish(t, woken, short)
				}
				if e := sole(t, s, Filter{Job: "a"}.with(runtime.EvaluationCancelled)); e.ID != waits.ID || e.Reason == "" {
					t.Errorf("cancelled is %+v", e)
				}
				s.finish(t, s.next(t), short)
				synctest.Wait()
				if e := sole(t, s, Filter{Job: "a"}.with(runtime.EvaluationBlocked)); e.Priority != 60 {
					t.Errorf("%+v waits", e)
				}
				if got := s.Stats().Depths; got.Blocked != 1 || got.Delayed != 0 || got.Outstanding != 0 {
					t.Errorf("depths: %+v", got)
				}
			})
		})
	}
}

// A woken evaluation that doesn't fit blocks again, as the same evaluation.
func TestReblock(t *testing.T) {
	run(t, Config{Workers: 1}, func(t *testing.T, s *bed) {
		full := fill(t, s)
		register(t, s, wish("a", "a", 50))
		synctest.Wait()
		before := sole(t, s, Filter{Job: "a"}.with(runtime.EvaluationBlocked))
		for i, want := range []struct {
			taken int // MiB taken by an urgent one, of the 256 that get free
			why   string
		}{{256, before.Reason}, {156, "memory exhausted: 256 MiB wanted, 100 MiB free"}} {
			if err := s.Pause(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.end(full[i])
			// It is woken, but another one is delivered first.
			urgent := sized(wish("urgent-"+string(full[i]), "b", 90), want.taken)
			register(t, s, urgent)
			s.Resume()
			synctest.Wait()
			after := sole(t, s, Filter{Job: "a"}.with(runtime.EvaluationBlocked))
			if s.placed("a") || !s.placed(urgent.ID) {
				t.Fatalf("%d: a: %v, urgent: %v", i, s.placed("a"), s.placed(urgent.ID))
			}
			if after.ID != before.ID || after.Reason != want.why {
				t.Errorf("%d: %+v\nwas %+v", i, after, before)
			}
			if got := s.Stats().Reblocked; got != int64(i+1) {
				t.Errorf("reblocked %d times", got)
			}
		}
	})
}

func (f Filter) with(status runtime.EvaluationStatus) Filter { f.Status = string(status); return f }

// An evaluation that a worker gave back is delivered again.
func TestGivenBackEvaluationIsPlaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{})
		register(t, s, wish("a", "a", 50))
		d := s.next(t)
		if !s.giveBack(d) || s.Stats().Depths.Delayed != 1 {
			t.Errorf("stats: %+v", s.Stats())
		}
		began := time.Now()
		defer start(s)()
		<-s.placements
		if took := time.Since(began); took != redeliver {
			t.Errorf("it was placed after %v, want %v", took, redeliver)
		}
	})
}

// The hints say that the reason of a runner may have changed. They come without the lock.
func TestHintsComeWithoutTheLock(t *testing.T) {
	var s *bed
	hinted := map[runtime.EnvironmentID]int{}
	run(t, Config{Workers: 1, Changed: func(id runtime.EnvironmentID) { hinted[id]++; s.Waiting("a") }}, func(t *testing.T, opened *bed) {
		s = opened
		for i := range 5 {
			register(t, s, wish(fmt.Sprint(i), fmt.Sprint(i), 50))
		}
		synctest.Wait()
		if len(hinted) != 5 || hinted["4"] != 1 {
			t.Errorf("hints: %v", hinted)
		}
	})
}
