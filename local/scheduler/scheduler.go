package scheduler

import (
	"context"
	"sync"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// A Scheduler decides when each runner gets its place on this machine. Its methods are safe for
// concurrent use; those without a ctx don't block.
type Scheduler struct {
	config  Config
	log     *zap.Logger
	stats   *stats
	state   *state
	broker  *broker
	blocked *blocked
	planner *planner
	gate    *gate
}

// New returns a Scheduler for a machine, or INVALID_INPUT for the first wrong field of config.
// Runners can be registered immediately. They are placed after [Scheduler.Run], [Scheduler.Restore]
// and [Scheduler.Restored] were called.
func New(config Config) (*Scheduler, error) {
	config, err := config.check()
	if err != nil {
		return nil, err
	}
	s := &Scheduler{config: config, log: config.Logger, stats: newStats(), gate: newGate()}
	s.state = newState(Node{Machine: config.Machine, Capacity: config.Overcommit.of(config.Machine)})
	s.broker = newBroker(s.stats, s.supersede)
	s.planner = newPlanner(s.state, s.broker.holds, s.stats)
	node := func() Node { return s.state.snapshot().Node() }
	s.blocked = newBlocked(node, s.broker.enqueue, s.stats)
	return s, nil
}

// Run schedules until ctx ends, then waits for its goroutines, and returns nil. It gives unfinished
// evaluations back. Afterwards runners can still be registered, but none is placed. It is called
// once.
func (s *Scheduler) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	for range s.config.Workers {
		w := s.newWorker(s.gate, runtime.EvaluationStop, runtime.EvaluationPlace)
		parts.Go(func() { w.run(ctx) })
	}
	// Work that only frees room continues while the machine drains.
	w := s.newWorker(nil, runtime.EvaluationStop, runtime.EvaluationCollect)
	parts.Go(func() { w.run(ctx) })
	parts.Go(func() { s.planner.run(ctx) })
	parts.Go(func() { s.followUp(ctx) })
	parts.Go(func() { s.collectAtIntervals(ctx) })
	<-ctx.Done()
	parts.Wait()
	s.broker.disable()
	s.logStats()
	return nil
}

// logStats logs the counters at the end: evaluations that were given back at shutdown appear
// nowhere else.
func (s *Scheduler) logStats() {
	all := s.Stats()
	s.log.Info("the scheduler has ended", zap.Int64("refreshes", all.Refreshes()), zap.Int64("nacks", all.Nacked),
		zap.Int64("blocked", all.Blocked), zap.Int64("reblocked", all.Reblocked), zap.Int64("resubmitted", all.Resubmitted))
}

// Pause parks the workers that place runners, while the machine drains. Once it has returned nil,
// nothing is placed until Resume; stops continue. If ctx ends, Pause returns its cause without
// waiting for busy workers, but the pause stays in force.
func (s *Scheduler) Pause(ctx context.Context) error {
	s.gate.set(true)
	return s.gate.settled(ctx)
}

// Resume ends a Pause; without one it does nothing.
func (s *Scheduler) Resume() { s.gate.set(false) }

// SetMachine sets the machine's resources, and wakes evaluations that fit now. No allocation is
// taken away. INVALID_INPUT names the first field that isn't above 0.
func (s *Scheduler) SetMachine(machine runtime.Resources) error {
	if err := checkMachine(machine); err != nil {
		return err
	}
	s.state.write(func(w *write) {
		node := w.Node()
		node.Machine, node.Capacity = machine, s.config.Overcommit.of(machine)
		w.put(tableNode, &node)
	})
	s.blocked.wakeFitting()
	return nil
}

// Reason returns why a runner isn't placed yet; "": it only waits for its turn, is placed, or is
// unknown.
func (s *Scheduler) Reason(id runtime.RunnerID) string {
	job, ok := s.Snapshot().Job(id)
	if !ok || job.Status != JobPending {
		return ""
	}
	failed, blocked := s.broker.failure(id), s.blocked.of(id)
	switch {
	case !s.planner.isEnabled():
		return "runners of the last server are being restored"
	case s.gate.isPaused(): // before shortages, because freed room doesn't end draining
		return "the machine is being drained"
	case blocked != nil:
		return blocked.Reason
	case failed != nil:
		return "its evaluation failed, and is tried again later"
	default:
		return ""
	}
}

// Lacks returns the room that a runner waits for, beyond what is free now. It is zero for a runner that
// doesn't wait for room, and for one that can never fit.
func (s *Scheduler) Lacks(id runtime.RunnerID) runtime.Resources {
	e := s.blocked.of(id)
	if e == nil || !s.planner.isEnabled() || s.gate.isPaused() {
		return runtime.Resources{}
	}
	r := s.roomFor(s.Snapshot(), e)
	if !e.wanted.Fits(r.capacity) {
		return runtime.Resources{}
	}
	return e.wanted.Beyond(r.free())
}

// Snapshot returns the current state.
func (s *Scheduler) Snapshot() Snapshot { return s.state.snapshot() }

// Wait blocks until the state's index is above after, and returns that state. It returns ctx's
// cause if ctx ends first.
func (s *Scheduler) Wait(ctx context.Context, after uint64) (Snapshot, error) {
	return s.state.reach(ctx, after+1)
}

// Orders blocks until the desired state of an allocation has changed after index after: to run or
// to stop. It returns those allocations as they are now, oldest change first, and the index for the
// next call. With 0 it returns all allocations that weren't collected yet. It returns ctx's cause
// if ctx ends.
func (s *Scheduler) Orders(ctx context.Context, after uint64) ([]Allocation, uint64, error) {
	return s.state.orders(ctx, after)
}

// Stats returns the counters, and the current depths.
func (s *Scheduler) Stats() Stats {
	all := s.stats.read()
	all.Depths = s.broker.depths()
	all.Depths.Blocked, all.Depths.Lacking = s.blocked.count()
	return all
}

// supersede ends an evaluation that the broker won't deliver, as CANCELLED.
func (s *Scheduler) supersede(old, by *Evaluation) {
	s.stats.superseded.Add(1)
	s.cancel(old, "evaluation "+string(by.ID)+" supersedes it")
}
