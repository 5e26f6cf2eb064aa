package nomad

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/nomad/listing"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/health"
)

func (w *world) wantTasks(want health.TaskStats) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.cluster.Stats().Tasks, cmpopts.IgnoreFields(health.TaskStats{}, "Phases")); diff != "" {
		w.t.Error(diff)
	}
}

func (w *world) start() runtime.RunnerID {
	w.t.Helper()
	id := runtime.NewRunnerID()
	if err := w.cluster.Start(w.t.Context(), id, w.env, runtime.PriorityRefill); err != nil {
		w.t.Fatal(err)
	}
	return id
}

// begin makes a task's node report that it received and started the task.
func begin(took time.Duration) func(*api.AllocationListStub) {
	return func(a *api.AllocationListStub) {
		received := time.Now().Add(-time.Hour) // its clock is another
		task := a.TaskStates[job.TaskName]
		task.Events = append(task.Events, &api.TaskEvent{Type: api.TaskReceived, Time: received.UnixNano()})
		task.StartedAt = received.Add(took)
	}
}

// Each step of a runner's life counts once, whichever list or event reports it.
func TestTasksAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		kept, lost, exits, moved := w.idle(), w.idle(), w.idle(), w.idle()
		w.wantTasks(health.TaskStats{Starts: 4})
		w.locked(func() {
			w.change(w.live(exits), fails)
			w.change(w.live(moved), func(a *api.AllocationListStub) { // by somebody else
				a.DesiredStatus, a.ClientStatus = api.AllocDesiredStatusStop, api.AllocClientStatusComplete
			})
		})
		time.Sleep(time.Second)
		for _, id := range []runtime.RunnerID{exits, moved} {
			if err := w.cluster.Remove(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		w.wantTasks(health.TaskStats{Starts: 4, Exits: 1})
		used := w.idle()
		if err := w.cluster.Remove(t.Context(), used); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * w.cluster.config.Relist)
		w.wantTasks(health.TaskStats{Starts: 5, Exits: 1, Kills: 1})

		w.stop()
		w.locked(func() { w.change(w.live(lost), fails) })
		w.run()
		time.Sleep(2 * w.config.LockTTL)
		if r := w.state(kept); r.State != runtime.RunnerIdle {
			t.Errorf("it is %s, want %s", r.State, runtime.RunnerIdle)
		}
		w.wantTasks(health.TaskStats{Restores: 1, Lost: 1})
	})
}

func TestFailedStartsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.locked(func() { w.pulling = true })
		id := w.start()
		time.Sleep(time.Second)
		w.locked(func() {
			w.change(w.live(id), func(a *api.AllocationListStub) { a.TaskStates[job.TaskName].Restarts = 2 })
		})
		time.Sleep(time.Second)
		w.wantTasks(health.TaskStats{StartFailures: 2, Restarts: 2})
		w.locked(func() { w.change(w.live(id), fails) })
		time.Sleep(time.Second)
		w.wantTasks(health.TaskStats{StartFailures: 3, Restarts: 2})
		if r := w.state(id); r.State != runtime.RunnerGone || r.GoneReason != runtime.GoneStartFailed {
			t.Errorf("it is %s, %s", r.State, r.GoneReason)
		}
		// A runner that is stopped before its start isn't a failure.
		id = w.start()
		time.Sleep(time.Second)
		if err := w.cluster.Remove(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		w.wantTasks(health.TaskStats{StartFailures: 3, Restarts: 2, Kills: 1})
	})
}

// A node's clock may differ: each duration is measured by a single clock.
func TestPhasesOfAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.locked(func() { w.unplaced = true })
		id := w.start()
		time.Sleep(3 * time.Second)
		w.locked(func() {
			w.unplaced, w.pulling = false, true
			w.placeAll()
		})
		time.Sleep(5 * time.Second)
		w.locked(func() { w.pulling = false })
		time.Sleep(5 * time.Second)
		if r := w.state(id); r.State != runtime.RunnerIdle {
			t.Fatalf("it is %s, want %s", r.State, runtime.RunnerIdle)
		}
		phases := w.cluster.Stats().Tasks.Phases
		if n := phases[health.PhaseStart].Count() + phases[health.PhasePoststart].Count(); n != 0 {
			t.Error("the node's time was counted before the node reported it")
		}
		w.locked(func() { w.change(w.live(id), begin(4*time.Second)) })
		time.Sleep(time.Second)
		w.locked(func() { w.change(w.live(id), func(*api.AllocationListStub) {}) })
		time.Sleep(time.Second)
		s := w.cluster.Stats()
		for phase, want := range map[health.Phase][2]time.Duration{
			health.PhaseTurn: {0, 0}, health.PhaseRegister: {0, time.Second}, health.PhasePlace: {3 * time.Second, 4 * time.Second},
			health.PhaseStart: {4 * time.Second, 4 * time.Second}, health.PhasePoststart: {time.Second, 2 * time.Second}, health.PhaseSave: {0, time.Second},
		} {
			if got := s.Tasks.Phases[phase]; got.Count() != 1 || got.Sum < want[0] || got.Sum > want[1] {
				t.Errorf("%s: %d times, %v, want %v", phase, got.Count(), got.Sum, want)
			}
		}
		if len(s.Tasks.Phases) != 6 || s.Placed != 1 {
			t.Errorf("%d phases, %d placed", len(s.Tasks.Phases), s.Placed)
		}
	})
}

func TestWaitingRunnersAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.idle()
		w.locked(func() { w.unplaced = true })
		id := w.start()
		w.start()
		time.Sleep(w.cluster.config.Relist)
		if r := w.state(id); r.Lacks != (runtime.Resources{MemoryMiB: r.Environment.Resources.MemoryMiB}) {
			t.Errorf("it lacks %+v", r.Lacks)
		}
		if s := w.cluster.Stats(); s.Blocked != 2 || s.Lacking[listing.Memory] != 2 || s.Pending != 0 || s.Placed != 1 {
			t.Errorf("%+v", s)
		}
		w.locked(func() {
			w.unplaced = false
			w.placeAll()
		})
		time.Sleep(w.cluster.config.Relist)
		if s := w.cluster.Stats(); s.Blocked != 0 || len(s.Lacking) != 0 || s.Placed != 3 {
			t.Errorf("%+v", s)
		}
	})
}

// Leaks are a removal that Nomad doesn't confirm, an allocation that runs without a job, and a job
// that can't be read.
func TestLeaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		id := w.idle()
		leaks := func(now int, ever int64, names string) {
			t.Helper()
			time.Sleep(2 * w.cluster.config.Relist)
			s, told := w.cluster.Stats(), problem(t, w.cluster, runnerSubject(id))
			if s.Leaked != now || s.Tasks.Leaks != ever || (told != "") != (names != "") || !strings.Contains(told, names) {
				t.Errorf("%d leaks, %d ever, and health says %q, want %d, %d, %q", s.Leaked, s.Tasks.Leaks, told, now, ever, names)
			}
		}
		leaks(0, 0, "")
		w.locked(func() { w.undead = true })
		if err := w.cluster.Remove(t.Context(), id); err == nil {
			t.Error("Remove returned while the runner's allocation runs")
		}
		leaks(1, 1, "hasn't reported that it ended")
		w.stop()
		w.run() // which doesn't know it
		w.locked(func() { delete(w.vars, w.cluster.names().Claim(id)) })
		leaks(1, 1, "its job is gone")
		if n := w.cluster.Stats().Tasks.RemovalFailures; n != 0 {
			t.Errorf("%d removals failed, want 0", n)
		}
		w.locked(func() {
			w.undead = false
			w.change(w.allocs[0], func(a *api.AllocationListStub) { a.ClientStatus = api.AllocClientStatusComplete })
		})
		leaks(0, 1, "")
	})
}

// A server's prefix may begin with another server's: its runners aren't leaks of the other one.
func TestOtherServersRunnersAreNoLeaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		name := w.cluster.names().Runner("x-runner-1")
		w.locked(func() {
			w.jobs[name] = &api.Job{
				ID: &name, Meta: map[string]string{"rockpool_prefix": "rockpool-runner-x"}, Stop: new(false), Priority: new(50), JobModifyIndex: new(uint64(1)),
			}
			w.place(name)
		})
		time.Sleep(3 * w.cluster.config.Relist)
		if s := w.cluster.Stats(); s.Leaked != 0 || s.Tasks.Leaks != 0 {
			t.Errorf("%d leaks", s.Leaked)
		}
		w.locked(func() { delete(w.jobs, name) })
		time.Sleep(3 * w.cluster.config.Relist)
		if s := w.cluster.Stats(); s.Leaked != 1 {
			t.Error("an allocation without a job isn't reported as a leak")
		}
	})
}

// The lock, bridges and calls are counted.
func TestLockIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.again(func(c *Config) { c.LockTTL = 10 * time.Second })
		w.idle()
		time.Sleep(time.Minute)
		if s := w.cluster.Stats(); !s.Lock.Held || s.Lock.Age > s.LockLasts/4 || s.Lock.Losses != 0 || s.LockLasts != 10*time.Second {
			t.Errorf("%+v of %s", s.Lock, s.LockLasts)
		}
		w.locked(func() { w.leaderless = true })
		time.Sleep(5 * time.Second)
		s := w.cluster.Stats()
		if !s.Lock.Held || s.Lock.Age < 5*time.Second || s.Calls.Calls[connection.LockVariable].Results[connection.CallFailed] == 0 {
			t.Errorf("%+v, %+v", s.Lock, s.Calls)
		}
		time.Sleep(10 * time.Second)
		if s := w.cluster.Stats(); s.Lock.Held || s.Lock.Losses != 1 {
			t.Errorf("%+v", s.Lock)
		}
	})
}
