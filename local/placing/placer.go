// Package placing gives runners their places on this machine: it wishes for places at
// the scheduler, carries the scheduler's orders out, reports what became of the
// runners, and drains the machine.
package placing

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/local/scheduler"
	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/tasks"
	"github.com/rockpool/rockpool/runtime/timing"
	"github.com/rockpool/rockpool/runtime/turns"
)

// Config is what a Placer works with.
type Config struct {
	Logger     *zap.Logger
	Store      Store
	CoreMHz    int // what one CPU gives
	Parallel   int // runners that are started at once
	Overcommit scheduler.Overcommit
	Collect    scheduler.Collect
	Changed    func(runtime.EnvironmentID) // see scheduler.Config
}

// A Store keeps since when the machine is being drained; zero: it isn't.
type Store interface {
	Draining(ctx context.Context) (time.Time, error)
	SetDraining(ctx context.Context, since time.Time) error
}

// A Placer works from Open to Close. Its methods may be called at once.
type Placer struct {
	Scheduler *scheduler.Scheduler
	Gate      *turns.Gate // of runners' starts

	config     Config
	log        *zap.Logger
	waited     *timing.Histogram // from the wish for a runner to its place
	drainTurn  turns.Slots       // of who drains, or ends that
	wake       chan struct{}     // capacity 1: Placed has some
	scheduling sync.WaitGroup    // the scheduler's Run
	end        func()            // ends it

	mu       sync.Mutex                  // guards all below, and what places know
	places   map[runtime.RunnerID]*Place // that were wished for
	placed   []*Place                    // to be led
	draining time.Time                   // since when; zero: not
}

// Open makes the scheduler of this machine and lets it work. It places nothing before
// Restored.
func Open(ctx context.Context, config Config) (*Placer, error) {
	machine, err := Measure(config.CoreMHz)
	if err != nil {
		return nil, err
	}
	p := &Placer{
		Gate:      turns.NewGate(config.Parallel),
		config:    config,
		log:       config.Logger,
		waited:    timing.New(tasks.StartBounds()...),
		drainTurn: make(turns.Slots, 1),
		wake:      make(chan struct{}, 1),
		places:    map[runtime.RunnerID]*Place{},
	}
	p.Scheduler, err = scheduler.New(scheduler.Config{
		Logger: p.log.Named("scheduler"), Machine: machine, Overcommit: config.Overcommit, Collect: config.Collect, Changed: config.Changed,
	})
	if err == nil {
		err = p.restoreDraining(ctx) // before it has anything to place
	}
	if err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	p.end = end
	p.scheduling.Go(func() { _ = p.Scheduler.Run(life) }) // nil
	return p, nil
}

// Restore takes over the runners that an earlier server left, as far as their
// records tell. Nothing is placed before Restored: first it has to be known which of
// them live.
func (p *Placer) Restore(left []*Place) error {
	var jobs []scheduler.Job
	var allocations []scheduler.Allocation
	p.mu.Lock()
	for _, place := range left {
		p.places[place.id] = place
		jobs = append(jobs, place.job())
		if place.allocation != "" {
			allocations = append(allocations, place.restored)
		}
	}
	p.mu.Unlock()
	return p.Scheduler.Restore(jobs, allocations)
}

// Restored lets runners be placed.
func (p *Placer) Restored() { p.Scheduler.Restored() }

// Run carries out the scheduler's orders, and keeps its capacity what the machine has,
// until ctx ends.
func (p *Placer) Run(ctx context.Context) {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { p.measureAtIntervals(ctx) })
	for after := uint64(0); ; {
		orders, next, err := p.Scheduler.Orders(ctx, after)
		if err != nil {
			return
		}
		for _, a := range orders {
			p.carryOut(a)
		}
		after = next
	}
}

// Close ends the scheduler, and waits for it.
func (p *Placer) Close() {
	p.end()
	p.scheduling.Wait()
}

// measureEvery is how often the machine is looked at anew: memory can be added to
// it, and its limit of processes raised, while runners wait for just that.
const measureEvery = 30 * time.Second

func (p *Placer) measureAtIntervals(ctx context.Context) {
	tick := time.NewTicker(measureEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.Measure()
		case <-ctx.Done():
			return
		}
	}
}

// Measure gives the scheduler what the machine has now.
func (p *Placer) Measure() {
	machine, err := Measure(p.config.CoreMHz)
	if err == nil && machine != p.Scheduler.Snapshot().Node().Machine {
		err = p.Scheduler.SetMachine(machine)
	}
	if err != nil {
		p.log.Warn("the machine could not be measured", zap.Error(err))
	}
}

func (p *Placer) carryOut(a scheduler.Allocation) {
	p.mu.Lock()
	place, draining := p.places[a.Job], !p.draining.IsZero()
	fresh := place != nil && place.allocation == ""
	if fresh {
		p.waited.Add(time.Since(place.wished))
	}
	if place != nil {
		place.allocation = a.ID
	}
	p.mu.Unlock()
	switch {
	case place == nil: // its runner was removed, and is forgotten
		p.report(a.Job, a.ID, runtime.AllocationComplete, "")
		return
	case a.Desired == runtime.DesiredStop:
		place.Task.Stop(taskrunner.End{})
	case fresh && draining: // endUnheld was too early to see it
		place.drain()
	}
	place.HandOver()
}

// Wake returns a channel that has a hint, of capacity 1, when Placed has some.
func (p *Placer) Wake() <-chan struct{} { return p.wake }

// Placed returns, once each, the places whose tasks are to be led from now on.
func (p *Placer) Placed() []*Place {
	p.mu.Lock()
	defer p.mu.Unlock()
	placed := p.placed
	p.placed = nil
	return placed
}

func (p *Placer) report(runner runtime.RunnerID, id runtime.AllocationID, status runtime.AllocationStatus, message string) {
	if id == "" {
		return // it never had a place
	}
	if err := p.Scheduler.Update(id, status, message); err != nil {
		p.log.Warn("the scheduler doesn't know a place", zap.String("runner", string(runner)), zap.String("allocation", string(id)), zap.Error(err))
	}
}

// Waited returns how long runners waited, from the wish to the place.
func (p *Placer) Waited() timing.Reading { return p.waited.Read() }

// Node returns what the machine has, and what of it is taken.
func (p *Placer) Node() scheduler.Node { return p.Scheduler.Snapshot().Node() }
