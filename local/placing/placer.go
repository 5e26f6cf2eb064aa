// Package placing connects runners to the scheduler of this machine: it registers runners, carries
// out the scheduler's orders, reports runners' states to it, and drains the machine.
package placing

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/local/scheduler"
	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/fairqueue"
	"github.com/rockpool/rockpool/runtime/health"
	"github.com/rockpool/rockpool/runtime/timing"
)

// Config configures a Placer.
type Config struct {
	Logger     *zap.Logger
	Store      Store
	CoreMHz    int // clock of one core in MHz
	Parallel   int // runners that start concurrently
	Overcommit scheduler.Overcommit
	Collect    scheduler.Collect
	Changed    func(runtime.EnvironmentID) // see scheduler.Config
}

// A Store stores since when the machine has been draining; zero: it isn't draining.
type Store interface {
	Draining(ctx context.Context) (time.Time, error)
	SetDraining(ctx context.Context, since time.Time) error
}

// A Placer works from Open to Close. Its methods are safe for concurrent use.
type Placer struct {
	Scheduler *scheduler.Scheduler
	Gate      *fairqueue.Limiter // limits concurrent starts of runners

	config     Config
	log        *zap.Logger
	waited     *timing.Histogram // from a runner's registration to its allocation
	drainTurn  fairqueue.Slots   // capacity 1: held while draining is started or ended
	wake       chan struct{}     // a hint, capacity 1: Placed returns something
	scheduling sync.WaitGroup    // of the scheduler's Run; Close waits
	end        func()            // ends the scheduler's Run

	mu       sync.Mutex                  // guards the fields below, and those of each Place
	places   map[runtime.RunnerID]*Place // registered runners
	placed   []*Place                    // handed over, and not returned by Placed yet
	draining time.Time                   // zero: not draining
}

// Open starts the scheduler of this machine; Close ends it. Nothing is placed before Restored.
func Open(ctx context.Context, config Config) (*Placer, error) {
	machine, err := Measure(config.CoreMHz)
	if err != nil {
		return nil, err
	}
	p := &Placer{
		Gate:      fairqueue.NewLimiter(config.Parallel),
		config:    config,
		log:       config.Logger,
		waited:    timing.New(health.StartBounds()...),
		drainTurn: make(fairqueue.Slots, 1),
		wake:      make(chan struct{}, 1),
		places:    map[runtime.RunnerID]*Place{},
	}
	p.Scheduler, err = scheduler.New(scheduler.Config{
		Logger: p.log.Named("scheduler"), Machine: machine, Overcommit: config.Overcommit, Collect: config.Collect, Changed: config.Changed,
	})
	if err == nil {
		err = p.restoreDraining(ctx) // before there is anything to place
	}
	if err != nil {
		return nil, err
	}
	// The scheduler outlives ctx, until Close.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	p.end = end
	p.scheduling.Go(func() { _ = p.Scheduler.Run(life) }) // it always returns nil
	return p, nil
}

// Restore takes over the runners that an earlier server left, as far as their records say. Nothing
// is placed before Restored: the caller first finds out which of them are alive.
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

// Restored lets runners be placed, from now on.
func (p *Placer) Restored() { p.Scheduler.Restored() }

// Run carries out the scheduler's orders, and updates its capacity when the machine's resources
// change, until ctx ends. It waits for its goroutine.
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

// measureEvery is the interval of measurements: memory can be added to a machine, or its limit of
// processes raised, while runners wait for that.
const measureEvery = 30 * time.Second

// measureAtIntervals measures the machine until ctx ends.
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

// Measure updates the scheduler with the machine's present resources.
func (p *Placer) Measure() {
	machine, err := Measure(p.config.CoreMHz)
	if err == nil && machine != p.Scheduler.Snapshot().Node().Machine {
		err = p.Scheduler.SetMachine(machine)
	}
	if err != nil {
		p.log.Warn("the machine's resources couldn't be measured", zap.Error(err))
	}
}

// carryOut carries out an order: it hands the runner's task over, and stops it if that is wanted.
// Repeating an order is harmless.
func (p *Placer) carryOut(a scheduler.Allocation) {
	p.mu.Lock()
	place, draining := p.places[a.Job], !p.draining.IsZero()
	fresh := place != nil && place.allocation == ""
	if fresh {
		p.waited.Add(time.Since(place.registered))
	}
	if place != nil {
		place.allocation = a.ID
	}
	p.mu.Unlock()
	switch {
	case place == nil: // its runner was removed
		p.report(a.Job, a.ID, runtime.AllocationComplete, "")
		return
	case a.Desired == runtime.DesiredStop:
		place.Task.Stop(taskrunner.End{})
	case fresh && draining: // endUnclaimed ran before it had its allocation
		place.drain()
	}
	place.HandOver()
}

// Wake returns a channel with a hint, of capacity 1, that Placed returns something.
func (p *Placer) Wake() <-chan struct{} { return p.wake }

// Placed returns the places whose tasks must be run from now on, each once.
func (p *Placer) Placed() []*Place {
	p.mu.Lock()
	defer p.mu.Unlock()
	placed := p.placed
	p.placed = nil
	return placed
}

// report passes an allocation's status on to the scheduler. An empty id is ignored.
func (p *Placer) report(runner runtime.RunnerID, id runtime.AllocationID, status runtime.AllocationStatus, message string) {
	if id == "" {
		return // it never had an allocation
	}
	if err := p.Scheduler.Update(id, status, message); err != nil {
		p.log.Warn("the scheduler doesn't know an allocation", zap.String("runner", string(runner)), zap.String("allocation", string(id)), zap.Error(err))
	}
}

// Waited returns how long runners waited from registration to allocation.
func (p *Placer) Waited() timing.Reading { return p.waited.Read() }

// Node returns the machine's resources, capacity and use.
func (p *Placer) Node() scheduler.Node { return p.Scheduler.Snapshot().Node() }
