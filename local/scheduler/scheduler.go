package scheduler

import (
	"context"
	"sync"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// A Scheduler decides when which runner gets its place on this machine. Its
// methods are safe for concurrent use; those that take no ctx don't block.
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

// New returns a Scheduler for a machine, which takes wishes at once and carries
// them out after [Scheduler.Run], [Scheduler.Restore] and [Scheduler.Restored],
// or INVALID_INPUT for what config has wrong.
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

// Run schedules until ctx ends, and returns nil. What was being worked on is
// given back, and wishes are still taken then, but nothing is carried out any
// more. It is called once.
func (s *Scheduler) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	for range s.config.Workers {
		w := s.newWorker(s.gate, runtime.EvaluationStop, runtime.EvaluationPlace)
		parts.Go(func() { w.run(ctx) })
	}
	// What only frees room goes on while the machine drains.
	w := s.newWorker(nil, runtime.EvaluationStop, runtime.EvaluationCollect)
	parts.Go(func() { w.run(ctx) })
	parts.Go(func() { s.planner.run(ctx) })
	parts.Go(func() { s.followUp(ctx) })
	parts.Go(func() { s.collectAtIntervals(ctx) })
	<-ctx.Done()
	parts.Wait()
	s.broker.disable()
	s.tellLast()
	return nil
}

// tellLast logs what was counted: what was given back at the end is seen by
// nobody else, who could ask for Stats only while the server served.
func (s *Scheduler) tellLast() {
	all := s.Stats()
	s.log.Info("the scheduler has ended", zap.Int64("refreshes", all.Refreshes()), zap.Int64("nacks", all.Nacked),
		zap.Int64("blocked", all.Blocked), zap.Int64("reblocked", all.Reblocked), zap.Int64("resubmitted", all.Resubmitted))
}

// Pause parks the workers that place runners, while the machine drains. When it
// returns nil, nothing is placed until Resume; stops go on. ctx ends the wait
// for what a worker is at, not the pause.
func (s *Scheduler) Pause(ctx context.Context) error {
	s.gate.set(true)
	return s.gate.settled(ctx)
}

// Resume ends a Pause.
func (s *Scheduler) Resume() { s.gate.set(false) }

// SetMachine says what the machine has now, and wakes what there is room for.
// Nothing that has its place loses it. INVALID_INPUT names what isn't above 0.
func (s *Scheduler) SetMachine(machine runtime.Resources) error {
	if err := checkMachine(machine); err != nil {
		return err
	}
	s.state.write(func(w *write) {
		node := w.Node()
		node.Machine, node.Capacity = machine, s.config.Overcommit.of(machine)
		w.put(tableNode, &node)
	})
	s.blocked.look()
	return nil
}

// Reason says what a runner that isn't placed yet waits for; "" if that is
// only its turn, or if it isn't known or doesn't wait.
func (s *Scheduler) Reason(id runtime.RunnerID) string {
	job, ok := s.Snapshot().Job(id)
	if !ok || job.Status != JobPending {
		return ""
	}
	failed, lacks := s.broker.failure(id), s.blocked.reason(id)
	switch {
	case !s.planner.isEnabled():
		return "runners of the last server are being restored"
	case s.gate.isPaused(): // which no freed room ends
		return "the machine is being drained"
	case lacks != "":
		return lacks
	case failed != nil:
		return "its evaluation failed, and is tried again later"
	default:
		return ""
	}
}

// Snapshot returns all that there is, as it is now.
func (s *Scheduler) Snapshot() Snapshot { return s.state.snapshot() }

// Wait blocks until the state has an index above after, and returns it, or
// until ctx ends.
func (s *Scheduler) Wait(ctx context.Context, after uint64) (Snapshot, error) {
	return s.state.reach(ctx, after+1)
}

// Orders blocks until after index after something else is desired of an
// allocation: that it run, or that it stop. It returns those allocations as
// they are now, the oldest order first, and the index to go on from. From 0 it
// returns all that weren't collected yet.
func (s *Scheduler) Orders(ctx context.Context, after uint64) ([]Allocation, uint64, error) {
	return s.state.orders(ctx, after)
}

// Stats returns what was counted up to now.
func (s *Scheduler) Stats() Stats {
	all := s.stats.read()
	all.Depths = s.broker.depths()
	all.Depths.Blocked, all.Depths.Lacking = s.blocked.count()
	return all
}

// supersede ends an evaluation that the broker will not deliver.
func (s *Scheduler) supersede(old, by *Evaluation) {
	s.stats.superseded.Add(1)
	s.cancel(old, "evaluation "+string(by.ID)+" does its work")
}
