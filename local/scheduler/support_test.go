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

func wish(id, environment string, priority runtime.Priority) Job {
	return Job{ID: runtime.RunnerID(id), Environment: runtime.EnvironmentID(environment), Resources: one, Priority: priority}
}

func sized(j Job, memoryMiB int) Job { j.Resources.MemoryMiB = memoryMiB; return j }

// A bed is a Scheduler whose new allocations the test receives.
type bed struct {
	*Scheduler
	placements chan runtime.Allocation
}

// open returns a Scheduler that isn't run.
func open(t testing.TB, config Config) *bed {
	t.Helper()
	if config.Machine == (runtime.Resources{}) {
		config.Machine = small
	}
	if config.Overcommit == (Overcommit{}) && config.Machine != laptop {
		config.Overcommit = exact
	}
	if config.Logger == nil {
		config.Logger = zaptest.NewLogger(t)
	}
	if config.Changed == nil {
		config.Changed = func(runtime.EnvironmentID) {}
	}
	b := &bed{placements: make(chan runtime.Allocation, 1<<16)}
	if config.Placed == nil {
		config.Placed = func(a runtime.Allocation) { b.placements <- a }
	}
	var err error
	if b.Scheduler, err = New(config); err != nil {
		t.Fatal(err)
	}
	return b
}

// start runs s until stop is called.
func start(s *bed) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { s.Run(ctx) })
	return sync.OnceFunc(func() { cancel(); group.Wait() })
}

// run tests a running Scheduler, which had nothing to restore, in fake time.
func run(t *testing.T, config Config, test func(t *testing.T, s *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, config)
		defer start(s)()
		test(t, s)
	})
}

func register(t testing.TB, s *bed, jobs ...Job) {
	t.Helper()
	for _, j := range jobs {
		if err := s.Register(j); err != nil {
			t.Fatal(err)
		}
	}
}

// A Filter picks evaluations or allocations; zero fields pick all.
type Filter struct {
	Job    runtime.RunnerID
	Status string // of an EvaluationStatus or an AllocationStatus
}

// find returns the evaluations that match the filter, newest first.
func (b *bed) find(f Filter) []runtime.Evaluation {
	filter := runtime.EvaluationFilter{RunnerID: f.Job}
	if f.Status != "" {
		filter.Statuses = []runtime.EvaluationStatus{runtime.EvaluationStatus(f.Status)}
	}
	all, _ := b.Evaluations(filter)
	return all
}

// allocated returns a job's allocations, newest first; with "" those of all jobs.
func (b *bed) allocated(id runtime.RunnerID) []runtime.Allocation {
	all, _ := b.Allocations(runtime.AllocationFilter{RunnerID: id})
	return all
}

// allocation returns a job's newest allocation.
func allocation(t testing.TB, s *bed, id runtime.RunnerID) runtime.Allocation {
	t.Helper()
	all := s.allocated(id)
	if len(all) == 0 {
		reason, _ := s.Waiting(id)
		t.Fatalf("%s has no allocation: %q; %+v", id, reason, s.find(Filter{Job: id}))
	}
	return all[0]
}

func (b *bed) placed(id runtime.RunnerID) bool { return len(b.allocated(id)) > 0 }

func (b *bed) reason(id runtime.RunnerID) string { reason, _ := b.Waiting(id); return reason }

func (b *bed) lacks(id runtime.RunnerID) runtime.Resources { _, lacks := b.Waiting(id); return lacks }

// end ends a job's allocation.
func (b *bed) end(id runtime.RunnerID) { b.Update(id, runtime.AllocationComplete, "") }

// state returns a copy of a job as it is now; nil if it is unknown.
func (b *bed) state(id runtime.RunnerID) *job {
	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.jobs[id]
	if j == nil {
		return nil
	}
	now := *j
	return &now
}

// fill takes all room of a small machine, and returns the runners.
func fill(t testing.TB, s *bed) []runtime.RunnerID {
	t.Helper()
	var ids []runtime.RunnerID
	for i := range 4 {
		j := wish(fmt.Sprintf("full-%d", i), "full", runtime.PriorityRefill)
		register(t, s, j)
		ids = append(ids, j.ID)
	}
	synctest.Wait()
	for _, id := range ids {
		if len(s.placements) == 0 {
			t.Fatalf("%s isn't placed", id)
		}
		<-s.placements
		s.Update(id, runtime.AllocationRunning, "")
	}
	return ids
}

func sole(t testing.TB, s *bed, f Filter) runtime.Evaluation {
	t.Helper()
	all := s.find(f)
	if len(all) != 1 {
		t.Fatalf("%d evaluations: %+v", len(all), all)
	}
	return all[0]
}

// checkUsed compares the node's Used with the allocations.
func checkUsed(t interface{ Errorf(string, ...any) }, s *bed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var used runtime.Resources
	for _, a := range s.allocations {
		if !a.Status.Ended() {
			used = used.Plus(a.Resources)
		}
	}
	if s.node.Used != used {
		t.Errorf("used is %+v, the allocations take %+v", s.node.Used, used)
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
