package scheduler

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/rockpool/rockpool/runtime"
)

// However many plans are made concurrently, and in whatever order they are applied: placements fit,
// and no job is placed twice.
func TestPlansWalk(t *testing.T) {
	walks(t, func(t *rapid.T) {
		capacity := runtime.Resources{CPUMHz: 100, MemoryMiB: 100, Processes: 100, WorkspaceMiB: 100}
		scheduler, err := New(Config{Machine: capacity, Overcommit: exact, Logger: zap.NewNop(), Changed: func(runtime.EnvironmentID) {}})
		if err != nil {
			t.Fatal(err)
		}
		s := &bed{Scheduler: scheduler}
		amount := rapid.IntRange(1, 60)
		for i := range 10 {
			if err := s.Register(Job{ID: runtime.RunnerID(fmt.Sprint(i)), Environment: "a", Priority: 50, Resources: runtime.Resources{
				CPUMHz: amount.Draw(t, "cpu"), MemoryMiB: amount.Draw(t, "memory"), Processes: amount.Draw(t, "processes"), WorkspaceMiB: amount.Draw(t, "workspace"),
			}}); err != nil {
				t.Fatal(err)
			}
		}
		type made struct {
			d delivery
			p plan
		}
		var plans []made
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				checkUsed(t, s)
				if !s.Node().Used.Fits(capacity) {
					t.Fatalf("over capacity: %+v", s.Node().Used)
				}
				live := map[runtime.RunnerID]int{}
				for _, a := range s.allocated("") {
					if !a.Status.Ended() {
						live[a.RunnerID]++
					}
					if live[a.RunnerID] > 1 {
						t.Fatalf("%s is placed twice", a.RunnerID)
					}
				}
			},
			"plan": func(t *rapid.T) {
				d := s.take()
				if d == nil {
					t.Skip()
				}
				plans = append(plans, made{*d, s.plan(*d)})
			},
			"apply": func(t *rapid.T) {
				if len(plans) == 0 {
					t.Skip()
				}
				at := rapid.IntRange(0, len(plans)-1).Draw(t, "plan") // perhaps an old one
				m := plans[at]
				if done, _ := s.apply(m.d, m.p); !done {
					plans[at].p = s.plan(m.d)
					return
				}
				plans = slices.Delete(plans, at, at+1)
				s.acked(m.d)
			},
			"register again": func(t *rapid.T) {
				j := s.state(runtime.RunnerID(fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "job")))).Job
				j.Priority = runtime.Priority(rapid.IntRange(1, 99).Draw(t, "priority"))
				if err := s.Register(j); err != nil {
					t.Fatal(err)
				}
			},
			"deregister": func(t *rapid.T) { s.Deregister(runtime.RunnerID(fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "job")))) },
			"lose an allocation": func(t *rapid.T) {
				s.Update(runtime.RunnerID(fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "job"))), runtime.AllocationLost, "")
			},
		})
		for _, j := range s.jobs { // their timers must not outlive the bubble
			for _, e := range []*evaluation{j.held, j.next} {
				if e != nil && e.timer != nil {
					e.timer.Stop()
				}
			}
		}
	})
}

// A whole scheduler at random: at rest, every wanted runner that fits is placed.
func TestSchedulerWalk(t *testing.T) {
	walks(t, walkScheduler)
}

func walkScheduler(t *rapid.T) {
	scheduler, err := New(Config{Machine: small, Overcommit: exact, Workers: 3, Logger: zap.NewNop(), Placed: func(runtime.Allocation) {}, Changed: func(runtime.EnvironmentID) {}})
	if err != nil {
		t.Fatal(err)
	}
	s := &bed{Scheduler: scheduler}
	defer start(s)()
	jobs := 0
	someJob := func(t *rapid.T) Job {
		if jobs == 0 {
			t.Skip()
		}
		j := s.state(runtime.RunnerID(fmt.Sprintf("%04d", rapid.IntRange(1, jobs).Draw(t, "job"))))
		if j == nil { // it was collected
			t.Skip()
		}
		return j.Job
	}
	t.Repeat(map[string]func(*rapid.T){
		"register": func(t *rapid.T) {
			for range rapid.IntRange(1, 4).Draw(t, "jobs") {
				jobs++
				j := wish(fmt.Sprintf("%04d", jobs), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "environment"), rapid.SampledFrom([]runtime.Priority{50, 80}).Draw(t, "priority"))
				if err := s.Register(sized(j, rapid.SampledFrom([]int{64, 256, 700, 2000}).Draw(t, "MiB"))); err != nil {
					t.Fatal(err)
				}
			}
		},
		"raise": func(t *rapid.T) {
			j := someJob(t)
			j.Priority = 80
			if err := s.Register(j); err != nil {
				t.Fatal(err)
			}
		},
		"deregister": func(t *rapid.T) { s.Deregister(someJob(t).ID) },
		"update": func(t *rapid.T) {
			s.Update(someJob(t).ID, rapid.SampledFrom(allocationOrder).Draw(t, "status"), "")
		},
		"drain":  func(*rapid.T) { _ = s.Pause(context.Background()) },
		"resume": func(*rapid.T) { s.Resume() },
		"settle": func(*rapid.T) { synctest.Wait() },
		"time":   func(t *rapid.T) { time.Sleep(time.Duration(rapid.IntRange(1, 600).Draw(t, "s")) * time.Second) },
		"": func(t *rapid.T) {
			checkUsed(t, s)
			if node := s.Node(); !node.Used.Fits(node.Capacity) {
				t.Fatalf("over capacity: %+v", node.Used)
			}
		},
	})
	s.Resume()
	synctest.Wait()
	atRest(t, s)
}

// atRest checks that nothing is left to do.
func atRest(t *rapid.T, s *bed) {
	depths := s.Stats().Depths
	waiting := depths.Blocked
	depths.Blocked, depths.Lacking = 0, nil
	if diff := cmp.Diff(depths, Depths{}); diff != "" {
		t.Fatalf("something is under way: %s", diff)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	open := map[runtime.RunnerID]*evaluation{}
	for _, e := range s.evaluations {
		if !e.Status.Ended() {
			if other, ok := open[e.RunnerID]; ok || e.Status != runtime.EvaluationBlocked {
				t.Fatalf("left over: %+v; %+v", e, other)
			}
			open[e.RunnerID] = e
		}
	}
	if len(open) != waiting || len(s.awake) > 0 || s.asleep.Len() != waiting {
		t.Fatalf("%d evaluations are blocked, %d wait, %d sleep, %d are awake", len(open), waiting, s.asleep.Len(), len(s.awake))
	}
	for id, j := range s.jobs {
		if j.unplaced() != (j.blocked != nil) || j.blocked != open[id] {
			t.Fatalf("%+v has blocked evaluation %+v", j, open[id])
		}
		if j.blocked != nil && s.roomFor(j, j.Priority).shortages(j.Resources) == nil {
			t.Fatalf("%+v would fit, and waits for %q", j, j.blocked.Reason)
		}
		if a := j.live(); a != nil && j.stopped && a.Desired != runtime.DesiredStop {
			t.Fatalf("not stopped: %+v", a)
		}
		if ended := j.live() == nil && !j.unplaced(); ended != !j.endedAt.IsZero() {
			t.Fatalf("%+v ended: %v", j, ended)
		}
	}
}

// Real workers and runners of allocations, all concurrently.
func TestSchedulerUnderLoad(t *testing.T) {
	s := open(t, Config{Workers: 4, Collect: Collect{Every: time.Second, Evaluations: time.Second, Runners: time.Second}})
	const runners = 400
	defer start(s)()
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for j := range runners / 4 {
				register(t, s, wish(fmt.Sprintf("%d-%d", i, j), fmt.Sprint(i), runtime.Priority(50+30*(j%2))))
			}
		})
	}
	for range runners {
		a := <-s.placements
		if node := s.Node(); !node.Used.Fits(node.Capacity) {
			t.Fatalf("over capacity: %+v", node.Used)
		}
		group.Go(func() {
			s.Update(a.RunnerID, runtime.AllocationRunning, "")
			s.Deregister(a.RunnerID)
			s.Update(a.RunnerID, runtime.AllocationComplete, "")
		})
	}
	group.Wait()
	checkUsed(t, s)
	got := s.Stats()
	if got.Placed != runners || got.Depths.Blocked != 0 || got.Failed != 0 || s.Node().Used != (runtime.Resources{}) {
		t.Errorf("stats: %+v", got)
	}
	t.Logf("refreshes %d, blocked %d, reblocked %d, nacked %d", got.PlansRefused, got.Blocked, got.Reblocked, got.Nacked)
}
