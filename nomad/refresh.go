package nomad

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/nomad/listing"
	"github.com/rockpool/rockpool/nomad/state"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/syncs"
)

// A refresher reads Nomad's lists again. Runners returns what it finds.
type refresher struct {
	*listing.Rounds
	due    syncs.Hint    // a refresh is pending
	synced chan struct{} // closed when this server owns the prefix and has refreshed once
}

func (r *refresher) soon() { r.due.Send() }

// first reports whether this was the first refresh, which waiting calls wait for. One goroutine calls it.
func (r *refresher) first() bool {
	select {
	case <-r.synced:
		return false
	default:
		close(r.synced)
		return true
	}
}

// keepFresh refreshes after each hint and at an interval, and awaits the agents of starting runners.
func (c *Cluster) keepFresh(ctx context.Context) error {
	tick := time.NewTicker(c.config.Relist)
	defer tick.Stop()
	p := connection.Backoff()
	for {
		err := c.refresher.Join(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		// refresh has reported the problem. Nothing else is due until it succeeds.
		case err != nil:
			if err := p.Wait(ctx); err != nil {
				return err
			}
			continue
		}
		p.Reset()
		if c.refresher.first() {
			c.changes.Send("")
		}
		select {
		case <-c.refresher.due:
		case <-tick.C:
			c.nodes.Outdate()
			c.others.Send("")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *Cluster) refresh(ctx context.Context) error {
	l, err := c.list(ctx)
	if err == nil {
		err = c.nodes.Refresh(ctx)
	}
	if err != nil {
		if ctx.Err() == nil {
			c.problems.Report(nomadSubject, err.Error())
		}
		return err
	}
	c.problems.Resolve(nomadSubject)
	f := c.apply(l)
	c.reportLeaks(f.leaks)
	for id, failed := range f.failed {
		for _, a := range failed {
			c.config.Logger.Warn("a runner's task failed", zap.String("runner", string(id)), zap.String("allocation", a.ID), zap.String("nomad", listing.Failure(a)))
		}
	}
	for env := range f.changed {
		c.changes.Send(env)
	}
	c.checkNetworks()
	return nil
}

// A snapshot is a listing, with what is needed to compare it with the known state.
type snapshot struct {
	*listing.Listing
	begun  int                               // number of this server's changes when the listing began
	claims map[runtime.RunnerID]state.Record // contents of the variables that changed
}

// list reads Nomad's lists, and then the variables that changed. It notes the number of this
// server's changes first, so that apply can recognize what the lists may lack.
func (c *Cluster) list(ctx context.Context) (*snapshot, error) {
	t := &snapshot{}
	waiting := false
	c.runners.mu.Lock()
	t.begun = c.runners.change
	highest := c.runners.highest
	for _, e := range c.runners.entries {
		// A starting runner without an allocation is what the evaluations explain.
		waiting = waiting || e.runner.State == runtime.RunnerStarting && e.allocation == "" && e.registered > 0
	}
	c.runners.mu.Unlock()
	var err error
	if t.Listing, err = c.reader.Read(ctx, waiting, highest); err != nil {
		return nil, err
	}
	t.claims, err = c.records.ReadAll(ctx, c.changedRecords(t.Listing))
	return t, err
}

// changedRecords returns the runners whose variables changed since they were last read and were written more
// than once. The first write only says that the runner was ready, so its content isn't needed,
// unless the task was restarted before or after.
func (c *Cluster) changedRecords(l *listing.Listing) []runtime.RunnerID {
	var changed []runtime.RunnerID
	c.runners.mu.Lock()
	defer c.runners.mu.Unlock()
	for id, v := range l.Variables {
		e := c.runners.entries[id]
		claimed := v.ModifyIndex > v.CreateIndex
		orphan := e == nil && l.Jobs[id] == nil // only its variable names its environment
		found := e == nil || e.ready == nil     // another server saw it become ready
		again := found && slices.ContainsFunc(l.Allocations[id], func(a *api.AllocationListStub) bool { return listing.Restarts(a) > 0 })
		if (claimed && (e == nil || v.ModifyIndex > e.variable)) || orphan || again {
			changed = append(changed, id)
		}
	}
	return changed
}

type found struct {
	changed map[runtime.EnvironmentID]bool                 // environments whose runners changed
	leaks   map[runtime.RunnerID]string                    // runners that are removed incompletely, and what is left
	failed  map[runtime.RunnerID][]*api.AllocationListStub // allocations that failed since the list before
}

// apply updates the runners from a listing, and returns what was new.
func (c *Cluster) apply(t *snapshot) found {
	f := found{changed: map[runtime.EnvironmentID]bool{}, failed: map[runtime.RunnerID][]*api.AllocationListStub{}}
	unreadable := map[runtime.RunnerID]string{}
	r := &c.runners
	r.mu.Lock()
	defer r.mu.Unlock()
	// Unknown jobs are runners of an earlier server. A list may still have the job of a removed
	// one.
	for id, stub := range t.Jobs {
		if r.entries[id] != nil || r.removed[id] > 0 {
			continue
		}
		if err := c.adopt(id, stub); err != nil {
			unreadable[id] = fmt.Sprintf("its job %s can't be read, so it isn't used: stop that job (%v)", stub.ID, err)
		}
	}
	// A variable without a job is left if no server ran when the job was purged. An entry for it
	// lets the pool see the runner as gone and remove it.
	for id := range t.Variables {
		if claim, read := t.claims[id]; read && r.entries[id] == nil && t.Jobs[id] == nil && r.removed[id] == 0 {
			r.adoptOrphan(id, claim)
		}
	}
	for id, e := range r.entries {
		if failed := listing.NewFailures(e.allocations, t.Allocations[id]); e.registered > 0 && len(failed) > 0 {
			f.failed[id] = failed
		}
		if c.applyTo(e, t) {
			f.changed[e.runner.Environment.ID] = true
		}
		c.awaitAgent(e)
	}
	r.observe(t, unreadable, &c.counts)
	f.leaks = r.observed.leaks
	// A listing that began after the removal can't show the runner any longer, so its id needn't be
	// kept.
	maps.DeleteFunc(r.removed, func(_ runtime.RunnerID, at int) bool { return at <= t.begun })
	return f
}

// adopt adds a runner of an earlier server. The caller holds mu.
func (c *Cluster) adopt(id runtime.RunnerID, stub *api.JobListStub) error {
	r, access, err := job.ReadRunner(id, stub.Meta)
	if err != nil {
		return err
	}
	r.URL = c.nomad.Pages.Job(stub.ID)
	c.runners.entries[id] = &entry{
		recorded: closed(), adopted: true, runner: r, access: access, registered: stub.JobModifyIndex, priority: c.config.Jobs.StartPriority(stub.Priority),
	}
	return nil
}

// adoptOrphan adds a runner whose job was purged while no server ran. The caller holds mu.
func (r *runners) adoptOrphan(id runtime.RunnerID, was state.Record) {
	r.entries[id] = &entry{recorded: closed(), adopted: true, registered: 1, runner: runtime.Runner{
		ID: id, State: runtime.RunnerStarting, Environment: runtime.Environment{ID: was.Environment}, CreatedAt: was.At,
	}}
}

func closed() chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// applyTo updates one runner from a listing. It reports whether that changes the result of Runners.
// It ignores a runner that this server changed while the lists were read, which the next listing
// covers. The caller holds mu.
func (c *Cluster) applyTo(e *entry, t *snapshot) bool {
	if e.registered == 0 {
		return false // Start requests a refresh when it is registered
	}
	id := e.runner.ID
	allocations := t.Allocations[id]
	if len(allocations) > 0 {
		e.allocations = allocations
	}
	if e.removing {
		e.settled = listing.AllOver(allocations)
		c.counts.listed(e)
		return false
	}
	// This server changed the runner after the listing began, or its job is newer than the list of
	// jobs. In both cases the list is too old to say that the runner ended.
	if e.change > t.begun || e.registered > t.JobsIndex {
		c.refresher.soon()
		return false
	}
	// The variable comes first: the outcome depends on whether the runner was ready, and on its
	// claim.
	before := e.runner
	e.applyVariable(t)
	c.counts.listed(e)
	o := c.outcome(e, t)
	e.oom = max(e.oom, o.OOMKills)
	moved := e.advance(o.State)
	if moved && o.State == runtime.RunnerGone {
		e.runner.GoneReason, e.runner.Message = o.Reason, o.Message
		c.counts.gone(e)
	}
	if e.adopted {
		c.counts.adopted(e)
		e.adopted = false
	}
	if e.runner.State == runtime.RunnerStarting {
		e.runner.Message, e.runner.Lacks = o.Message, c.lacks(e.runner.Environment.Resources, o.Lacks)
		if o.Message == "" && c.bridges.Starves(id) {
			e.runner.Message = fmt.Sprintf("it waits for a connection: runners in use have all %d of --nomad-bridges (rockpool doctor says how many Nomad takes)", c.config.Bridges)
		}
	}
	return moved || e.runner.Message != before.Message || e.runner.Lacks != before.Lacks
}

// lacks returns the room that a runner waits for. Nomad doesn't say how much is free, so it is all that
// the runner needs. It is zero if no node can ever have it.
func (c *Cluster) lacks(needs runtime.Resources, of []listing.Dimension) (room runtime.Resources) {
	jobs := c.config.Jobs
	needs.MemoryMiB = max(int(float64(needs.MemoryMiB)*jobs.MemoryReserve), 1)
	if len(of) == 0 || len(jobs.Template) == 0 && c.nodes.Room(jobs.Driver, int64(needs.CPUMHz), int64(needs.MemoryMiB)) == 0 {
		return room
	}
	for _, d := range of {
		switch d {
		case listing.CPU:
			room.CPUMHz = needs.CPUMHz
		case listing.Memory:
			room.MemoryMiB = needs.MemoryMiB
		case listing.Disk:
			room.WorkspaceMiB = needs.WorkspaceMiB
		}
	}
	return room
}

// outcome returns a runner's outcome, and records its allocation. The caller holds mu.
func (c *Cluster) outcome(e *entry, t *snapshot) listing.Outcome {
	id := e.runner.ID
	stub := t.Jobs[id]
	o := listing.OutcomeOf(listing.Evidence{
		Purged: stub == nil, Stopped: stub != nil && stub.Stop, Dead: stub == nil || stub.Status == "dead",
		Allocations: t.Allocations[id], Evaluations: t.Evaluations[id], Draining: c.nodes.Drains, Ready: e.ready,
	})
	e.location = location{allocations: e.allocations}
	if a := o.Allocation; a != nil {
		e.allocation, e.node, e.restarts, e.runs = a.ID, a.NodeID, listing.Restarts(a), listing.Runs(a, e.access.Task)
		if e.ready != nil && e.ready.Allocation == "" { // its next claim records the allocation
			e.ready.Allocation, e.ready.Restarts = e.allocation, e.restarts
		}
		e.runner.Ports = listing.Ports(a)
		// An idle runner on such a node will end soon, so no claim may get it. A claimed one
		// continues until Nomad stops it.
		if o.State == runtime.RunnerIdle && !e.runner.Claim.Held() && c.nodes.Drains(a.NodeID) {
			o = listing.Outcome{State: runtime.RunnerGone, Reason: runtime.GoneDrained, Message: "its node is being drained", OOMKills: o.OOMKills}
		}
	}
	if o.State == runtime.RunnerIdle && e.runner.Claim.Held() {
		o.State = runtime.RunnerClaimed
	}
	return o
}

// applyVariable records that a runner was ready, and its claim. The caller holds mu.
func (e *entry) applyVariable(t *snapshot) {
	v := t.Variables[e.runner.ID]
	if v == nil || v.ModifyIndex <= e.variable {
		return
	}
	was, read := t.claims[e.runner.ID]
	if v.ModifyIndex > v.CreateIndex && !read {
		return // it was written just now; the next listing reads it
	}
	e.variable = v.ModifyIndex
	if e.ready == nil {
		e.ready = &listing.Readiness{Index: v.CreateIndex, At: time.Unix(0, v.CreateTime)}
	}
	if read {
		e.variable = max(e.variable, was.Index)
		e.runner.Claim = was.Claim
		e.ready.Allocation, e.ready.Restarts = was.Allocation, was.Restarts
	}
}
