package scheduler

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// A Scheduler decides when each runner gets its allocation on this machine. Its methods are safe for
// concurrent use; those without a ctx don't block.
type Scheduler struct {
	config  Config
	log     *zap.Logger
	timings timings

	mu          sync.Mutex // guards the fields below, and all jobs and evaluations
	wake        *sync.Cond // an evaluation is ready, a pause has ended, or Run ends
	idle        *sync.Cond // busy is 0
	counts      Stats      // its Depths and Timings are unused
	node        Node
	jobs        map[runtime.RunnerID]*job
	evaluations []*evaluation         // oldest first
	allocations []*runtime.Allocation // oldest first
	ready       *queue
	asleep      *queue        // blocked evaluations that nothing has woken
	awake       map[*job]bool // jobs whose blocked evaluation was woken, with room that is promised to it
	registered  uint64        // counts jobs
	tokens      uint64
	paused      bool
	busy        int                     // workers with an evaluation
	hints       []runtime.EnvironmentID // unlock passes them to Config.Changed
}

// New returns a Scheduler for a machine, or INVALID_INPUT for the first amount of the machine that
// isn't above 0. Runners can be registered immediately. They are placed once Run runs.
func New(config Config) (*Scheduler, error) {
	config = config.withDefaults()
	s := &Scheduler{
		config: config, log: config.Logger, timings: newTimings(),
		jobs: map[runtime.RunnerID]*job{}, ready: newQueue(), asleep: newQueue(), awake: map[*job]bool{},
	}
	s.wake, s.idle = sync.NewCond(&s.mu), sync.NewCond(&s.mu)
	return s, s.SetMachine(config.Machine)
}

// Run places runners until ctx ends, then waits for its goroutines. Afterwards runners can still be
// registered, but none is placed. It is called once.
func (s *Scheduler) Run(ctx context.Context) {
	s.mu.Lock()
	slices.SortFunc(s.allocations, func(a, b *runtime.Allocation) int { return cmp.Compare(a.ID, b.ID) }) // after Restore
	s.mu.Unlock()
	var workers sync.WaitGroup
	for range s.config.Workers {
		workers.Go(func() { s.work(ctx) })
	}
	s.collectAtIntervals(ctx)
	s.mu.Lock()
	s.wake.Broadcast()
	s.mu.Unlock()
	workers.Wait()
	all := s.Stats()
	s.log.Info("the scheduler has ended", zap.Int64("refreshes", all.PlansRefused), zap.Int64("nacks", all.Nacked),
		zap.Int64("blocked", all.Blocked), zap.Int64("reblocked", all.Reblocked))
}

// hint records that what runners of an environment wait for may have changed. The caller holds mu.
func (s *Scheduler) hint(id runtime.EnvironmentID) { s.hints = append(s.hints, id) }

// unlock releases mu, and then passes the hints on: Changed may take other locks.
func (s *Scheduler) unlock() {
	hints := s.hints
	s.hints = nil
	s.mu.Unlock()
	for _, id := range hints {
		s.config.Changed(id)
	}
}

// Register registers a runner. Registering a known one again is success: it only changes the
// priority, unless the runner is placed. A deregistered runner stays so. INVALID_INPUT names the
// first field of job that is out of range.
func (s *Scheduler) Register(j Job) error {
	if err := j.Check(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.unlock()
	known := s.jobs[j.ID]
	switch {
	case known == nil:
		known = s.add(j)
	case !known.unplaced() || known.Priority == j.Priority:
		return nil
	default:
		known.Priority = j.Priority
	}
	s.enqueue(s.newEvaluation(known, runtime.TriggerRegister))
	return nil
}

// add adds a job. The caller holds mu.
func (s *Scheduler) add(j Job) *job {
	s.registered++
	added := &job{Job: j, number: s.registered}
	s.jobs[j.ID] = added
	return added
}

// Restore registers a runner of an earlier server, whose job Check accepts. Call it before Run. An
// allocation that it had is PENDING or RUNNING; with "" it had none, and is placed by Run.
func (s *Scheduler) Restore(j Job, had runtime.AllocationStatus) {
	s.mu.Lock()
	defer s.unlock()
	added := s.add(j)
	if had == "" {
		s.enqueue(s.newEvaluation(added, runtime.TriggerRestore))
		return
	}
	// The runner's id sorts before the ids of this server's allocations.
	a := s.allocate(added, runtime.AllocationID(j.ID), "")
	if had == runtime.AllocationRunning {
		advance(a, had, "", time.Now())
	}
}

// allocate gives a job an allocation. The caller holds mu.
func (s *Scheduler) allocate(j *job, id runtime.AllocationID, by runtime.EvaluationID) *runtime.Allocation {
	a := &runtime.Allocation{
		ID: id, RunnerID: j.ID, EnvironmentID: j.Environment, EvaluationID: by, Resources: j.Resources,
		Desired: runtime.DesiredRun, Status: runtime.AllocationPending, CreatedAt: time.Now(),
	}
	s.node.Used = s.node.Used.Plus(a.Resources)
	j.allocation, s.allocations = a, append(s.allocations, a)
	return a
}

// newEvaluation returns an evaluation that places a job's runner. The caller holds mu.
func (s *Scheduler) newEvaluation(j *job, trigger runtime.EvaluationTrigger) *evaluation {
	e := s.record(runtime.EvaluationPlace, trigger, j.Priority)
	e.job, e.RunnerID, e.EnvironmentID = j, j.ID, j.Environment
	return e
}

// record returns a new evaluation that isn't about a runner yet. The caller holds mu.
func (s *Scheduler) record(kind runtime.EvaluationType, trigger runtime.EvaluationTrigger, priority runtime.Priority) *evaluation {
	e := &evaluation{Evaluation: runtime.Evaluation{
		ID: runtime.NewEvaluationID(), Type: kind, Trigger: trigger, Priority: int(priority),
		Status: runtime.EvaluationPending, CreatedAt: time.Now(),
	}}
	s.evaluations = append(s.evaluations, e)
	return e
}

// Deregister ends a runner's registration; an unknown runner is success. Nothing new is placed for
// it. The caller ends the runner, if it was placed, and then calls Update.
func (s *Scheduler) Deregister(id runtime.RunnerID) {
	s.mu.Lock()
	defer s.unlock()
	j := s.jobs[id]
	if j == nil || j.stopped {
		return
	}
	j.stopped, j.failed = true, false
	if !j.endedAt.IsZero() {
		return // nothing is left to stop
	}
	e := s.record(runtime.EvaluationStop, runtime.TriggerDeregister, priorityStop)
	e.job, e.RunnerID, e.EnvironmentID, e.DequeuedAt = j, j.ID, j.Environment, e.CreatedAt
	s.supersede(j, e)
	if a := j.live(); a != nil {
		a.Desired = runtime.DesiredStop
		s.counts.Stopped++
	} else {
		j.endedAt = e.CreatedAt
	}
	e.end(runtime.EvaluationComplete, "", time.Now())
}

// Update reports the status of a runner's allocation. A status only moves forward. A report that is
// repeated, late, or about a runner without an allocation changes nothing. An ended allocation frees
// its room.
func (s *Scheduler) Update(id runtime.RunnerID, status runtime.AllocationStatus, message string) {
	s.mu.Lock()
	defer s.unlock()
	j := s.jobs[id]
	if j == nil || j.live() == nil {
		return
	}
	a := j.live()
	if !advance(a, status, message, time.Now()) || !status.Ended() {
		return
	}
	s.node.Used = s.node.Used.Minus(a.Resources)
	j.endedAt = a.EndedAt
	s.wakeFitting()
}

// Pause stops placements, while the machine drains. Once it has returned nil, Config.Placed isn't
// called until Resume. If ctx ends, Pause returns its cause without waiting for busy workers, but
// the pause stays in force.
func (s *Scheduler) Pause(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = true
	defer context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.idle.Broadcast()
	})()
	for s.busy > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.idle.Wait()
	}
	return nil
}

// Resume ends a Pause; without one it does nothing.
func (s *Scheduler) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = false
	s.wake.Broadcast()
}

// SetMachine sets the machine's resources, and wakes evaluations that fit now. No allocation is
// taken away. INVALID_INPUT names the first field that isn't above 0.
func (s *Scheduler) SetMachine(machine runtime.Resources) error {
	if err := checkResources("scheduler.machine", machine); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.unlock()
	s.node.Machine, s.node.Capacity = machine, s.config.Overcommit.of(machine)
	s.wakeFitting()
	return nil
}

// Node returns the machine: its resources, capacity and use.
func (s *Scheduler) Node() Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node
}

// Waiting returns why a runner isn't placed yet. An empty reason means that it only waits for its
// turn, is placed, or is unknown. lacks is the room that it waits for, beyond what is free now. It is
// zero if the runner doesn't wait for room, or can never fit.
func (s *Scheduler) Waiting(id runtime.RunnerID) (reason string, lacks runtime.Resources) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[id]
	switch {
	case j == nil || !j.unplaced():
		return "", lacks
	case s.paused: // before shortages, because freed room doesn't end draining
		return "the machine is being drained", lacks
	case j.blocked != nil:
		if j.Resources.Fits(s.node.Capacity) {
			lacks = j.Resources.Beyond(s.roomFor(j, runtime.Priority(j.blocked.Priority)).free())
		}
		return j.blocked.Reason, lacks
	case j.failed:
		return "its evaluation failed, and is tried again later", lacks
	}
	return "", lacks
}

// Evaluations returns a page of the evaluations, newest first, and how many match the filter in all.
func (s *Scheduler) Evaluations(f runtime.EvaluationFilter) (copied []runtime.Evaluation, total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	page, total := runtime.Paginate(func(yield func(*evaluation) bool) {
		for _, e := range slices.Backward(s.evaluations) {
			if f.Matches(e.RunnerID, e.EnvironmentID, e.Status) && !yield(e) {
				return
			}
		}
	}, f, func(e *evaluation) string { return string(e.ID) })
	for _, e := range page {
		copied = append(copied, e.Evaluation)
	}
	return copied, total
}

// Allocations returns a page of the allocations, newest first, and how many match the filter in all.
// A restored allocation has its runner's id, so it sorts as the oldest.
func (s *Scheduler) Allocations(f runtime.AllocationFilter) (copied []runtime.Allocation, total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	page, total := runtime.Paginate(func(yield func(*runtime.Allocation) bool) {
		for _, a := range slices.Backward(s.allocations) {
			if f.Matches(a.RunnerID, a.EnvironmentID, a.Status) && !yield(a) {
				return
			}
		}
	}, f, func(a *runtime.Allocation) string { return string(a.ID) })
	for _, a := range page {
		copied = append(copied, *a)
	}
	return copied, total
}

func (s *Scheduler) collectAtIntervals(ctx context.Context) {
	for backoff.Sleep(ctx, s.config.Collect.Every) == nil {
		s.collect(time.Now())
	}
}

// collect deletes what ended long enough before now.
func (s *Scheduler) collect(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.evaluations) + len(s.allocations) + len(s.jobs)
	old := func(ended time.Time, age time.Duration) bool { return !ended.IsZero() && now.Sub(ended) >= age }
	s.evaluations = slices.DeleteFunc(s.evaluations, func(e *evaluation) bool { return old(e.EndedAt, s.config.Collect.Evaluations) })
	s.allocations = slices.DeleteFunc(s.allocations, func(a *runtime.Allocation) bool { return old(a.EndedAt, s.config.Collect.Runners) })
	for id, j := range s.jobs {
		if j.held == nil && old(j.endedAt, s.config.Collect.Runners) {
			delete(s.jobs, id)
		}
	}
	s.counts.Collected += int64(before - len(s.evaluations) - len(s.allocations) - len(s.jobs))
	e := s.record(runtime.EvaluationCollect, runtime.TriggerInterval, priorityCollect)
	e.DequeuedAt = e.CreatedAt
	e.end(runtime.EvaluationComplete, "", time.Now())
}
