package local

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/runner"
	"github.com/rockpool/rockpool/local/scheduler"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

// tight lets the machine promise a tenth of its memory. It returns an environment of which two and
// a half runners fit.
func (c *Config) tight(t *testing.T) runtime.Environment {
	t.Helper()
	machine, err := measure(1000)
	if err != nil {
		t.Fatal(err)
	}
	const factor = 0.1
	c.Overcommit = scheduler.Overcommit{Memory: factor}
	env := hostEnvironment()
	env.Resources.MemoryMiB = int(factor * float64(machine.MemoryMiB) / 2.5)
	return env
}

// wish starts a runner that doesn't fit yet, and returns its id and the reason.
func (b *bench) wish(env runtime.Environment, priority runtime.Priority) (runtime.RunnerID, string) {
	b.t.Helper()
	id := runtime.NewRunnerID()
	if err := b.Start(b.t.Context(), id, env, priority); err != nil {
		b.t.Fatal(err)
	}
	return id, b.whyWaiting(id)
}

// whyWaiting waits until a runner has a reason for waiting.
func (b *bench) whyWaiting(id runtime.RunnerID) string {
	b.t.Helper()
	var r runtime.Runner
	wait.For(b.t, "it has a reason for waiting", func() bool { // the scheduler's state alone doesn't show it
		if r, _ = b.runner(id); r.State != runtime.RunnerStarting {
			b.t.Fatalf("it doesn't wait: %+v", r)
		}
		return r.Message != ""
	})
	return r.Message
}

func TestRunnersWaitForCapacity(t *testing.T) {
	b := newBench(t)
	b.Close()
	env := b.config.tight(t)
	b.open()
	b.run()
	first, second := b.begin(env), b.begin(env)
	refill, why := b.wish(env, runtime.PriorityRefill)
	if want := fmt.Sprintf("memory exhausted: %d MiB wanted, ", env.Resources.MemoryMiB); len(why) < len(want) || why[:len(want)] != want {
		t.Errorf("it waits for %q", why)
	}
	never, _ := b.wish(env, runtime.PriorityRefill)
	claimed, _ := b.wish(env, runtime.PriorityWaiting)

	if err := b.Remove(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if r := b.await(claimed, runtime.RunnerIdle); r.State != runtime.RunnerIdle || r.Message != "" {
		t.Errorf("the runner that a claim waits for: %+v", r)
	}
	if r, _ := b.runner(refill); r.State != runtime.RunnerStarting {
		t.Errorf("a refill went before: %+v", r)
	}
	// Requested again with a higher priority, the younger of two refills goes first.
	if err := b.Start(t.Context(), never, env, runtime.PriorityWaiting); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "it waits at its new position", func() bool {
		e := b.evaluations(never)[0]
		return e.Status == runtime.EvaluationBlocked && e.Priority == int(runtime.PriorityWaiting)
	})
	if err := b.Remove(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	b.await(never, runtime.RunnerIdle)
	b.whyWaiting(refill)
	if err := b.Remove(t.Context(), refill); err != nil { // it never had an allocation
		t.Fatal(err)
	}
	if _, there := b.runner(refill); there {
		t.Error("a runner that was removed from the queue is listed")
	}
	if used := b.scheduler.Node().Used.MemoryMiB; used != 2*env.Resources.MemoryMiB {
		t.Errorf("%d MiB are promised", used)
	}
}

// A runner that survived the server keeps its room; a dead one frees it.
func TestRestoredRunnersKeepTheirAllocations(t *testing.T) {
	b := newBench(t)
	env := b.config.tight(t)
	b.runKept()
	lives, dies := b.begin(env), b.begin(env)
	pid := b.agentOf(dies)
	waits, _ := b.wish(env, runtime.PriorityRefill)
	b.stop()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.reopened()
	if r, there := b.runner(lives); !there || r.State != runtime.RunnerIdle {
		t.Errorf("it lived: %+v", r)
	}
	b.await(waits, runtime.RunnerIdle) // it gets the dead runner's room
	b.wish(env, runtime.PriorityRefill)
}

// The registration of a runner that didn't fit survives the server: it isn't registered again, nor
// removed like a started runner.
func TestQueuedRunnerSurvivesARestart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.Close()
	env := b.config.tight(t)
	b.open()
	b.runKept()
	one, two := b.begin(env), b.begin(env)
	waits, _ := b.wish(env, runtime.PriorityRefill)
	b.reopened()
	if r, ok := b.runner(waits); !ok || r.State != runtime.RunnerStarting {
		t.Fatalf("the wish is %+v", r)
	}
	// Its plan was refused, or it was evaluated, after the others were restored.
	if why := b.whyWaiting(waits); !strings.Contains(why, "memory exhausted") {
		t.Errorf("it waits for: %s", why)
	}
	if trigger := b.evaluations(waits)[0].Trigger; trigger != runtime.TriggerNoRoom {
		t.Errorf("its last evaluation was made by %s, want %s", trigger, runtime.TriggerNoRoom)
	}
	if err := b.Remove(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	b.await(waits, runtime.RunnerIdle)
	b.expect(waits, "echo hi", "hi")
	for _, id := range []runtime.RunnerID{two, waits} {
		if err := b.Remove(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}

// evaluations returns a runner's evaluations, newest first.
func (b *bench) evaluations(id runtime.RunnerID) []runtime.Evaluation {
	all, _ := b.scheduler.Evaluations(runtime.EvaluationFilter{RunnerID: id})
	return all
}

// A refill that a claim waits for is made before refills that also have allocations and were
// registered earlier.
func TestClaimedRefillStartsFirst(t *testing.T) {
	b := newBench(t)
	b.stop()
	b.config.Parallel = 1
	b.open()
	b.run()
	release, err := b.starts.Waiter("", "none", runtime.PriorityWaiting).Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ids := []runtime.RunnerID{runtime.NewRunnerID(), runtime.NewRunnerID(), runtime.NewRunnerID()}
	for i, id := range ids {
		if err := b.Start(t.Context(), id, hostEnvironment(), runtime.PriorityRefill); err != nil {
			t.Fatal(err)
		}
		wait.For(t, "it is placed, and in the queue", func() bool { return b.starts.Waiting() > i })
	}
	if err := b.Start(t.Context(), ids[2], hostEnvironment(), runtime.PriorityWaiting); err != nil {
		t.Fatal(err)
	}
	release()
	var began []time.Time
	for _, id := range ids {
		b.await(id, runtime.RunnerIdle)
		began = append(began, startedAt(b.privateOf(id)))
	}
	if !began[2].Before(began[0]) || !began[0].Before(began[1]) {
		t.Errorf("they were started at %v", began)
	}
}

// Added resources of the machine wake waiting runners.
func TestAddedCapacityWakesWaitingRunners(t *testing.T) {
	b := running(t)
	machine := b.scheduler.Node().Machine
	small := machine
	small.Processes = 1
	if err := b.scheduler.SetMachine(small); err != nil {
		t.Fatal(err)
	}
	id := runtime.NewRunnerID()
	if err := b.Start(t.Context(), id, hostEnvironment(), runtime.PriorityRefill); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "it waits for processes", func() bool { return b.scheduler.Stats().Depths.Blocked > 0 })
	b.measure()
	if now := b.scheduler.Node().Machine; now != machine {
		t.Errorf("the machine is %+v, and was %+v", now, machine)
	}
	b.await(id, runtime.RunnerIdle)
}

// startedAt returns when a runner's first process was started.
func startedAt(r runner.Record) time.Time {
	for _, e := range r.Events {
		if e.Kind == runtime.TaskStarted {
			return e.At
		}
	}
	return time.Time{}
}
