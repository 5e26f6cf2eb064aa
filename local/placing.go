package local

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/scheduler"
	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime"
)

// The scheduler decides when a runner gets its place; this file carries its
// orders out, and tells it what became of them.

// openScheduler makes the scheduler of this machine, with the runners that the
// last server left as far as their records tell, and has it work: it carries
// nothing out until it is known which of them live.
func (c *Cluster) openScheduler(ctx context.Context, left []*entry) error {
	machine, err := scheduler.Measure(c.host.Machine.CoreMHz)
	if err != nil {
		return err
	}
	c.scheduler, err = scheduler.New(scheduler.Config{
		Logger: c.log.Named("scheduler"), Machine: machine, Overcommit: c.config.Overcommit, Collect: c.config.Collect,
		Changed: c.changes.Send,
	})
	if err == nil {
		err = c.restoreDraining(ctx) // before it has anything to place
	}
	if err != nil {
		return err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	c.endScheduling = end
	c.scheduling.Go(func() { _ = c.scheduler.Run(life) }) // nil
	now := time.Now()
	var jobs []scheduler.Job
	var allocations []scheduler.Allocation
	for _, e := range left {
		if e.runner.Environment.ID == "" || e.runner.State == runtime.RunnerGone {
			continue // nobody knows what it was promised, or it takes nothing any more
		}
		jobs = append(jobs, e.job())
		if e.untouched {
			continue // it had no place, or didn't come to use it
		}
		e.allocation = runtime.AllocationID(e.id) // sorts before those of this server
		a := scheduler.Allocation{
			ID: e.allocation, Job: e.id, Environment: e.environment, Resources: sandbox.Takes(e.runner.Environment), Status: runtime.AllocationPending,
		}
		if runtime.RunnerStarting.Before(e.runner.State) {
			a.Status, a.RunningAt = runtime.AllocationRunning, now
		}
		allocations = append(allocations, a)
	}
	return c.scheduler.Restore(jobs, allocations)
}

// measureEvery is how often the machine is looked at anew: memory can be added to
// it, and its limit of processes raised, while runners wait for just that.
const measureEvery = 30 * time.Second

// measure keeps the scheduler's capacity what the machine has, until ctx ends.
func (c *Cluster) measure(ctx context.Context) {
	tick := time.NewTicker(measureEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.remeasure()
		case <-ctx.Done():
			return
		}
	}
}

func (c *Cluster) remeasure() {
	machine, err := scheduler.Measure(c.host.Machine.CoreMHz)
	if err == nil && machine != c.scheduler.Snapshot().Node().Machine {
		err = c.scheduler.SetMachine(machine)
	}
	if err != nil {
		c.log.Warn("the machine could not be measured", zap.Error(err))
	}
}

// stopScheduling ends the scheduler, if it works, and waits for it.
func (c *Cluster) stopScheduling() {
	if c.endScheduling != nil {
		c.endScheduling()
		c.scheduling.Wait()
	}
}

// job is the wish for a runner.
func (e *entry) job() scheduler.Job { return wish(e.runner, e.ticket.Priority()) }

func wish(r runtime.Runner, priority runtime.Priority) scheduler.Job {
	return scheduler.Job{ID: r.ID, Environment: r.Environment.ID, Resources: sandbox.Takes(r.Environment), Priority: priority}
}

// obey carries out the scheduler's orders until ctx ends.
func (c *Cluster) obey(ctx context.Context) {
	for after := uint64(0); ; {
		orders, next, err := c.scheduler.Orders(ctx, after)
		if err != nil {
			return
		}
		for _, a := range orders {
			c.carryOut(a)
		}
		after = next
	}
}

func (c *Cluster) carryOut(a scheduler.Allocation) {
	c.mu.Lock()
	e, draining := c.entries[a.Job], !c.draining.IsZero()
	fresh := e != nil && e.allocation == ""
	if e != nil {
		if e.allocation == "" {
			c.placing.Add(time.Since(e.runner.CreatedAt))
		}
		e.allocation = a.ID
	}
	c.mu.Unlock()
	switch {
	case e == nil: // it was removed, and is forgotten
		c.tell(a.Job, a.ID, runtime.AllocationComplete, "")
		return
	case a.Desired == runtime.DesiredStop:
		e.task.Stop(taskrunner.End{})
	case fresh && draining: // endUnheld was too early to see it
		e.task.Stop(drained)
		c.scheduler.Deregister(e.id)
	}
	c.handOver(e)
}

// handOver gives a runner, once, to who leads its task: Run, as soon as it
// runs.
func (c *Cluster) handOver(e *entry) {
	c.mu.Lock()
	handed := e.handed
	e.handed = true
	if !handed {
		c.placed = append(c.placed, e)
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// unwish has a runner that is recorded end. What has its place ends when the
// scheduler orders it; what has none ends without ever having been made.
func (c *Cluster) unwish(e *entry) {
	if !c.scheduler.Deregister(e.id) {
		e.task.Stop(taskrunner.End{})
		c.handOver(e)
	}
}

// ran tells the scheduler that a runner's agent answered.
func (c *Cluster) ran(e *entry) {
	c.mu.Lock()
	id := e.allocation
	c.mu.Unlock()
	c.tell(e.id, id, runtime.AllocationRunning, "")
}

// freed tells everybody that a runner takes no room any more: its processes are
// gone.
func (c *Cluster) freed(e *entry) {
	c.mu.Lock()
	id, status, message := e.allocation, runtime.AllocationFailed, e.runner.Message
	switch {
	case e.lost:
		status, message = runtime.AllocationLost, "it wasn't there after a restart"
	case e.removing, e.runner.GoneReason == runtime.GoneDrained:
		status, message = runtime.AllocationComplete, ""
	}
	c.mu.Unlock()
	c.tell(e.id, id, status, message)
	c.changes.Send(e.environment)
}

// lose takes back the wish for a runner of the last server that isn't there any
// more. Nothing takes its place but what the pool wishes for, and its room is
// free when nothing of it runs.
func (c *Cluster) lose(e *entry) {
	e.lost = true
	if e.allocation != "" {
		c.scheduler.Deregister(e.id)
	}
}

func (c *Cluster) tell(runner runtime.RunnerID, id runtime.AllocationID, status runtime.AllocationStatus, message string) {
	if id == "" {
		return // it never had a place
	}
	if err := c.scheduler.Update(id, status, message); err != nil {
		c.log.Warn("the scheduler doesn't know a place", zap.String("runner", string(runner)), zap.Error(fmt.Errorf("%s: %w", id, err)))
	}
}
