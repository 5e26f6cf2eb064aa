package scheduler

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	"pgregory.net/rapid"

	"github.com/rockpool/rockpool/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// small is a machine with room for four runners of the size of one.
var (
	one   = runtime.Resources{CPUMHz: 100, MemoryMiB: 256, Processes: 16, WorkspaceMiB: 16}
	small = runtime.Resources{CPUMHz: 4000, MemoryMiB: 1024, Processes: 1000, WorkspaceMiB: 1000}
	exact = Overcommit{CPU: 1, Memory: 1, Processes: 1, Workspace: 1}
)

func job(id, environment string, priority runtime.Priority) Job {
	return Job{ID: runtime.RunnerID(id), Environment: runtime.EnvironmentID(environment), Resources: one, Priority: priority}
}

func sized(j Job, memoryMiB int) Job { j.Resources.MemoryMiB = memoryMiB; return j }

// open returns a Scheduler that isn't run.
func open(t testing.TB, config Config) *Scheduler {
	t.Helper()
	if config.Machine == (runtime.Resources{}) {
		config.Machine = small
	}
	if config.Overcommit == (Overcommit{}) {
		config.Overcommit = exact
	}
	if config.Logger == nil {
		config.Logger = zaptest.NewLogger(t)
	}
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// start runs s until stop is called.
func start(t interface{ Error(...any) }, s *Scheduler) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return sync.OnceFunc(func() { cancel(); group.Wait() })
}

// run tests a running Scheduler, which had nothing to restore, in fake time.
func run(t *testing.T, config Config, test func(t *testing.T, s *Scheduler)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, config)
		defer start(t, s)()
		fresh(t, s)
		test(t, s)
	})
}

func fresh(t testing.TB, s *Scheduler) {
	t.Helper()
	if err := s.Restore(nil, nil); err != nil {
		t.Fatal(err)
	}
	s.Restored()
}

func register(t testing.TB, s *Scheduler, jobs ...Job) {
	t.Helper()
	for _, j := range jobs {
		if err := s.Register(j); err != nil {
			t.Fatal(err)
		}
	}
}

func update(t testing.TB, s *Scheduler, id runtime.AllocationID, status runtime.AllocationStatus) {
	t.Helper()
	if err := s.Update(id, status, ""); err != nil {
		t.Fatal(err)
	}
}

// allocation returns a job's newest allocation.
func allocation(t testing.TB, s *Scheduler, id runtime.RunnerID) Allocation {
	t.Helper()
	all := s.Snapshot().Allocations(Filter{Job: id})
	if len(all) == 0 {
		t.Fatalf("%s has no allocation: %q; %+v", id, s.Reason(id), s.Snapshot().Evaluations(Filter{Job: id}))
	}
	return all[0]
}

func placed(s *Scheduler, id runtime.RunnerID) bool {
	return len(s.Snapshot().Allocations(Filter{Job: id})) > 0
}

// end ends a job's allocation.
func end(t testing.TB, s *Scheduler, id runtime.RunnerID) {
	t.Helper()
	update(t, s, allocation(t, s, id).ID, runtime.AllocationComplete)
}

// fill takes all room of a small machine, and returns the runners.
func fill(t testing.TB, s *Scheduler) []runtime.RunnerID {
	t.Helper()
	var ids []runtime.RunnerID
	for i := range 4 {
		j := job(fmt.Sprintf("full-%d", i), "full", runtime.PriorityRefill)
		register(t, s, j)
		ids = append(ids, j.ID)
	}
	synctest.Wait()
	for _, id := range ids {
		update(t, s, allocation(t, s, id).ID, runtime.AllocationRunning)
	}
	return ids
}

func sole(t testing.TB, s *Scheduler, f Filter) Evaluation {
	t.Helper()
	all := s.Snapshot().Evaluations(f)
	if len(all) != 1 {
		t.Fatalf("%d evaluations: %+v", len(all), all)
	}
	return all[0]
}

// checkUsed compares the node's Used with the allocations.
func checkUsed(t interface{ Errorf(string, ...any) }, snap Snapshot) {
	var used runtime.Resources
	for _, a := range snap.Allocations(Filter{}) {
		if !a.Status.Ended() {
			used = used.Plus(a.Resources)
		}
	}
	if node := snap.Node(); node.Used != used {
		t.Errorf("used is %+v, the allocations take %+v", node.Used, used)
	}
}

// walks runs random walks, each in fake time of its own.
func walks(t *testing.T, walk func(*rapid.T)) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		var failed any // rapid ends a walk by a panic, which must leave the bubble
		synctest.Test(t, func(*testing.T) {
			defer func() { failed = recover() }()
			walk(rt)
		})
		if failed != nil {
			panic(failed)
		}
	})
}

// Jobs returns all jobs by id.
func (s Snapshot) Jobs() []Job {
	var all []Job
	for j := range each[Job](must(s.txn.Get(tableJobs, "id"))) {
		all = append(all, *j)
	}
	return all
}

// A Filter picks evaluations or allocations; zero fields pick all.
type Filter struct {
	Job    runtime.RunnerID
	Status string // of an EvaluationStatus or an AllocationStatus
}

// Evaluations returns the evaluations that match the filter, newest first.
func (s Snapshot) Evaluations(f Filter) (all []Evaluation) {
	for e := range s.EachEvaluation(f.Job) {
		if f.Status == "" || f.Status == string(e.Status) {
			all = append(all, e)
		}
	}
	return all
}

// Allocations returns the allocations that match the filter, newest first.
func (s Snapshot) Allocations(f Filter) (all []Allocation) {
	for a := range s.EachAllocation(f.Job) {
		if f.Status == "" || f.Status == string(a.Status) {
			all = append(all, a)
		}
	}
	return all
}
