package scheduler

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rockpool/rockpool/runtime"
)

// However many plans run concurrently, and on whatever snapshot: placements fit, and no job is
// placed twice.
func TestPlannerWalk(t *testing.T) {
	walks(t, func(t *rapid.T) {
		capacity := runtime.Resources{CPUMHz: 100, MemoryMiB: 100, Processes: 100, WorkspaceMiB: 100}
		s := newState(Node{Capacity: capacity})
		p := newPlanner(s, func(delivery) bool { return true }, &stats{})
		amount := rapid.IntRange(1, 60)
		s.write(func(w *write) {
			for i := range 10 {
				w.putJob(Job{ID: runtime.RunnerID(fmt.Sprint(i)), Priority: 50, Resources: runtime.Resources{
					CPUMHz: amount.Draw(t, "cpu"), MemoryMiB: amount.Draw(t, "memory"), Processes: amount.Draw(t, "processes"), WorkspaceMiB: amount.Draw(t, "workspace"),
				}})
			}
		})
		snapshots := []Snapshot{s.snapshot()}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				snap := s.snapshot()
				checkUsed(t, snap)
				if node := snap.Node(); !node.Used.Fits(capacity) {
					t.Fatalf("over capacity: %+v", node.Used)
				}
				live := map[runtime.RunnerID]int{}
				for _, a := range snap.Allocations(Filter{}) {
					if !a.Status.Ended() {
						live[a.Job]++
					}
					if live[a.Job] > 1 {
						t.Fatalf("%s is placed twice", a.Job)
					}
				}
			},
			"snapshot": func(*rapid.T) { snapshots = append(snapshots, s.snapshot()) },
			"plans": func(t *rapid.T) {
				var batch []submission
				for range rapid.IntRange(1, 5).Draw(t, "plans") {
					snap := rapid.SampledFrom(snapshots).Draw(t, "snapshot") // perhaps an old one
					j := rapid.SampledFrom(snap.Jobs()).Draw(t, "job")
					made, _ := reconcile(&j, snap.allocations(j.ID), room{capacity: capacity, used: snap.Node().Used})
					made.delivery.Evaluation = &Evaluation{Priority: runtime.Priority(rapid.IntRange(1, 99).Draw(t, "priority"))}
					batch = append(batch, submission{made, make(chan answered, 1)})
				}
				p.apply(batch)
				for _, b := range batch {
					if a := <-b.answer; a.refresh > s.snapshot().index {
						t.Fatalf("refresh %d was never committed", a.refresh)
					}
				}
			},
			"stop a job": func(t *rapid.T) {
				s.write(func(w *write) {
					j := rapid.SampledFrom(w.Jobs()).Draw(t, "job")
					j.Stopped = true
					w.putJob(j)
				})
			},
			"end an allocation": func(t *rapid.T) {
				s.write(func(w *write) {
					all := w.Allocations(Filter{})
					if len(all) == 0 {
						return
					}
					a := rapid.SampledFrom(all).Draw(t, "allocation")
					if after, ok := a.advance(runtime.AllocationLost, "", w.now); ok {
						w.putAllocation(&a, after)
					}
				})
			},
		})
	})
}

// A whole scheduler at random: at rest, every wanted runner that fits is placed.
func TestSchedulerWalk(t *testing.T) {
	walks(t, walkScheduler)
}

func walkScheduler(t *rapid.T) {
	config, err := Config{Machine: small, Overcommit: exact, Workers: 3}.check()
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	defer start(t, s)()
	if err := s.Restore(nil, nil); err != nil {
		t.Fatal(err)
	}
	s.Restored()
	jobs := 0
	someJob := func(t *rapid.T) Job {
		all := s.Snapshot().Jobs()
		if len(all) == 0 {
			t.Skip()
		}
		return rapid.SampledFrom(all).Draw(t, "job")
	}
	t.Repeat(map[string]func(*rapid.T){
		"register": func(t *rapid.T) {
			for range rapid.IntRange(1, 4).Draw(t, "jobs") {
				jobs++
				j := job(fmt.Sprintf("%04d", jobs), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "environment"), rapid.SampledFrom([]runtime.Priority{50, 80}).Draw(t, "priority"))
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
			all := s.Snapshot().Allocations(Filter{})
			if len(all) == 0 {
				t.Skip()
			}
			a := rapid.SampledFrom(all).Draw(t, "allocation")
			_ = s.Update(a.ID, rapid.SampledFrom(allocationOrder).Draw(t, "status"), "")
		},
		"drain":  func(*rapid.T) { s.gate.set(true) },
		"resume": func(*rapid.T) { s.Resume() },
		"settle": func(*rapid.T) { synctest.Wait() },
		"time":   func(t *rapid.T) { time.Sleep(time.Duration(rapid.IntRange(1, 600).Draw(t, "s")) * time.Second) },
		"": func(t *rapid.T) {
			snap := s.Snapshot()
			checkUsed(t, snap)
			if node := snap.Node(); !node.Used.Fits(node.Capacity) {
				t.Fatalf("over capacity: %+v", node.Used)
			}
		},
	})
	s.Resume()
	synctest.Wait()
	atRest(t, s)
}

// atRest checks that nothing is left to do.
func atRest(t *rapid.T, s *Scheduler) {
	snap := s.Snapshot()
	depths := s.Stats().Depths
	waiting := depths.Blocked
	depths.Blocked, depths.Lacking = 0, nil
	if diff := cmp.Diff(depths, Depths{Ready: map[runtime.EvaluationType]int{runtime.EvaluationPlace: 0, runtime.EvaluationStop: 0, runtime.EvaluationCollect: 0}}); diff != "" {
		t.Fatalf("something is under way: %s", diff)
	}
	open := map[runtime.RunnerID]Evaluation{}
	for _, e := range snap.Evaluations(Filter{}) {
		if !e.Status.Ended() {
			if other, ok := open[e.Job]; ok || e.Status != runtime.EvaluationBlocked {
				t.Fatalf("left over: %+v; %+v", e, other)
			}
			open[e.Job] = e
		}
	}
	if len(open) != waiting || len(s.blocked.awake) > 0 {
		t.Fatalf("%d evaluations are blocked, %d wait, %d are awake", len(open), waiting, len(s.blocked.awake))
	}
	for _, j := range snap.Jobs() {
		e, blocked := open[j.ID]
		if (j.Status == JobPending) != blocked {
			t.Fatalf("%+v has blocked evaluation %+v", j, e)
		}
		if !blocked {
			continue
		}
		if short := s.roomFor(snap, &e).shortages(j.Resources); short == nil {
			t.Fatalf("%+v would fit, and waits for %q", j, e.Reason)
		}
	}
	for _, a := range snap.Allocations(Filter{}) {
		if j, ok := snap.Job(a.Job); ok && j.Stopped && !a.Status.Ended() && a.Desired != runtime.DesiredStop {
			t.Fatalf("not stopped: %+v", a)
		}
	}
}

// Real workers and runners of allocations, all concurrently.
func TestSchedulerUnderLoad(t *testing.T) {
	s := open(t, Config{Workers: 4, Collect: Collect{Every: time.Second, Evaluations: time.Second, Runners: time.Second}})
	defer start(t, s)()
	fresh(t, s)
	const runners = 400
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for j := range runners / 4 {
				register(t, s, job(fmt.Sprintf("%d-%d", i, j), fmt.Sprint(i), runtime.Priority(50+30*(j%2))))
			}
		})
	}
	ended := 0
	var after uint64
	for ended < runners {
		orders, at, err := s.Orders(t.Context(), after)
		if err != nil {
			t.Fatal(err)
		}
		after = at
		for _, a := range orders {
			switch {
			case a.Desired == runtime.DesiredStop && !a.Status.Ended():
				update(t, s, a.ID, runtime.AllocationComplete)
				ended++
			case a.Status == runtime.AllocationPending:
				update(t, s, a.ID, runtime.AllocationRunning)
				group.Go(func() { s.Deregister(a.Job) })
			}
		}
		if snap := s.Snapshot(); !snap.Node().Used.Fits(snap.Node().Capacity) {
			t.Fatalf("over capacity: %+v", snap.Node().Used)
		}
	}
	group.Wait()
	checkUsed(t, s.Snapshot())
	got := s.Stats()
	if got.Placed != runners || got.Depths.Blocked != 0 || got.Failed != 0 || s.Snapshot().Node().Used != (runtime.Resources{}) {
		t.Errorf("stats: %+v", got)
	}
	t.Logf("refreshes %d, blocked %d, reblocked %d, nacked %d", got.Refreshes(), got.Blocked, got.Reblocked, got.Nacked)
}
