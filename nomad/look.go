package nomad

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/rockpool/rockpool/runtime"
)

// A listing is what a few lists say of all runners. They are asked for one
// after the other: evaluations before allocations, so that an evaluation that
// has ended has its allocation listed, and jobs before variables.
type listing struct {
	begun       int // changes of ours before it
	evaluations map[string][]*api.Evaluation
	jobs        map[runtime.RunnerID]*api.JobListStub
	jobsIndex   uint64
	allocations map[runtime.RunnerID][]*api.AllocationListStub
	variables   map[runtime.RunnerID]*api.VariableMetadata
	claims      map[runtime.RunnerID]record // of the variables that moved
}

// look looks at the truth: Runners answers what it finds.
func (c *Cluster) look(ctx context.Context) error {
	return c.lists.join(ctx, c.spawn, c.lookNow)
}

func (c *Cluster) lookNow(ctx context.Context) error {
	l, err := c.list(ctx)
	if err == nil {
		err = c.refreshNodes(ctx)
	}
	if err != nil {
		if ctx.Err() == nil {
			c.problems.Report(nomadSubject, err.Error())
		}
		return err
	}
	c.problems.Resolve(nomadSubject)
	changed, unreadable := c.take(l)
	for id, err := range unreadable {
		c.problems.Report(runnerSubject(id), fmt.Sprintf("its job %s can't be read, so nobody gets it: stop it (%v)", c.names.runner(id), err))
	}
	c.forgetUnreadable(unreadable)
	for _, env := range changed {
		c.changes.Send(env)
	}
	c.warmAll()
	return nil
}

// forgetUnreadable forgets problems of jobs that somebody has stopped.
func (c *Cluster) forgetUnreadable(unreadable map[runtime.RunnerID]error) {
	c.problems.ResolveFunc(func(subject string) bool {
		id, ok := strings.CutPrefix(subject, runnerSubject(""))
		return ok && unreadable[runtime.RunnerID(id)] == nil
	})
}

func (c *Cluster) list(ctx context.Context) (*listing, error) {
	c.mu.Lock()
	l := &listing{begun: c.change}
	waiting := false
	for _, e := range c.entries {
		waiting = waiting || e.runner.State == runtime.RunnerStarting && e.allocation == "" && e.registered > 0
	}
	c.mu.Unlock()
	if waiting {
		if err := c.call(ctx, "list evaluations", func(ctx context.Context) error { return c.listEvaluations(ctx, l) }); err != nil {
			return nil, err
		}
	}
	for _, step := range []struct {
		what string
		do   func(context.Context, *listing) error
	}{{"list jobs", c.listJobs}, {"list allocations", c.listAllocations}, {"list claims", c.listVariables}} {
		if err := c.call(ctx, step.what, func(ctx context.Context) error { return step.do(ctx, l) }); err != nil {
			return nil, err
		}
	}
	return l, c.readClaims(ctx, l)
}

// ours is a filter for what has a field with the name of a job of ours. A
// prefix has no character that is special in a regular expression.
func (c *Cluster) ours(ctx context.Context, field string) *api.QueryOptions {
	q := query(ctx)
	q.Filter = fmt.Sprintf("%s matches \"^%s\"", field, c.names.runners())
	return q
}

func (c *Cluster) listEvaluations(ctx context.Context, l *listing) error {
	all, _, err := c.nomad.calls.Evaluations().List(c.ours(ctx, "JobID"))
	l.evaluations = map[string][]*api.Evaluation{}
	for _, e := range all {
		l.evaluations[e.JobID] = append(l.evaluations[e.JobID], e)
	}
	return err
}

func (c *Cluster) listJobs(ctx context.Context, l *listing) error {
	q := query(ctx)
	q.Prefix = c.names.runners()
	jobs, meta, err := c.nomad.calls.Jobs().ListOptions(&api.JobListOptions{Fields: &api.JobListFields{Meta: true}}, q)
	if err != nil {
		return err
	}
	c.mu.Lock()
	stale := meta.LastIndex < c.highest
	c.mu.Unlock()
	if stale { // a new leader, or a server that answers for none, may not know yet what we did
		return errStale
	}
	l.jobs, l.jobsIndex = map[runtime.RunnerID]*api.JobListStub{}, meta.LastIndex
	for _, job := range jobs {
		owner := job.Meta[metaPrefix]
		if id, ok := c.names.runnerOf(job.ID, c.names.runners()); ok && (owner == "" || owner == c.config.Prefix) {
			l.jobs[id] = job
		}
	}
	return nil
}

func (c *Cluster) listAllocations(ctx context.Context, l *listing) error {
	q := c.ours(ctx, "JobID")
	q.Params = map[string]string{"resources": "true"}
	all, _, err := c.nomad.calls.Allocations().List(q)
	l.allocations = map[runtime.RunnerID][]*api.AllocationListStub{}
	for _, a := range all {
		if id, ok := c.names.runnerOf(a.JobID, c.names.runners()); ok {
			l.allocations[id] = append(l.allocations[id], a)
		}
	}
	return err
}

func (c *Cluster) listVariables(ctx context.Context, l *listing) error {
	all, _, err := c.nomad.calls.Variables().PrefixList(c.names.claims(), query(ctx))
	l.variables = map[runtime.RunnerID]*api.VariableMetadata{}
	for _, v := range all {
		if id, ok := c.names.runnerOf(v.Path, c.names.claims()); ok {
			l.variables[id] = v
		}
	}
	return err
}

// readAtOnce is how many claims are read together.
const readAtOnce = 8

// readClaims reads the variables that were written since they were last read,
// and more than once: the first time tells only that the runner was ready. That
// is enough, unless its task was restarted before or after.
func (c *Cluster) readClaims(ctx context.Context, l *listing) error {
	var moved []runtime.RunnerID
	c.mu.Lock()
	for id, v := range l.variables {
		e := c.entries[id]
		claimed := v.ModifyIndex > v.CreateIndex
		orphan := e == nil && l.jobs[id] == nil // then nothing else tells its environment
		found := e == nil || e.ready == nil     // by a server that didn't see it ready
		again := found && slices.ContainsFunc(l.allocations[id], func(a *api.AllocationListStub) bool { return restarts(a) > 0 })
		if (claimed && (e == nil || v.ModifyIndex > e.variable)) || orphan || again {
			moved = append(moved, id)
		}
	}
	c.mu.Unlock()
	l.claims = map[runtime.RunnerID]record{}
	records := make([]*record, len(moved))
	var g errgroup.Group
	g.SetLimit(readAtOnce)
	for i, id := range moved {
		g.Go(func() error {
			r, err := c.readRecord(ctx, id)
			records[i] = r
			return err
		})
	}
	err := g.Wait()
	for i, id := range moved {
		if records[i] != nil {
			l.claims[id] = *records[i]
		}
	}
	return err
}

// take takes a listing in, and returns the environments whose runners changed,
// and what can't be read.
func (c *Cluster) take(l *listing) ([]runtime.EnvironmentID, map[runtime.RunnerID]error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed, unreadable := map[runtime.EnvironmentID]bool{}, map[runtime.RunnerID]error{}
	for id, job := range l.jobs {
		if c.entries[id] != nil || c.removed[id] > 0 {
			continue
		}
		if err := c.adopt(id, job); err != nil {
			unreadable[id] = err
		}
	}
	for id := range l.variables {
		if r, read := l.claims[id]; read && c.entries[id] == nil && l.jobs[id] == nil && c.removed[id] == 0 {
			c.adoptOrphan(id, r)
		}
	}
	for _, e := range c.entries {
		if c.takeEntry(l, e) {
			changed[e.runner.Environment.ID] = true
		}
	}
	for id, at := range c.removed {
		if at <= l.begun {
			delete(c.removed, id)
		}
	}
	return slices.Collect(maps.Keys(changed)), unreadable
}

// adopt takes in a runner of an earlier server. The caller holds mu.
func (c *Cluster) adopt(id runtime.RunnerID, job *api.JobListStub) error {
	r, way, err := readRunner(id, job.Meta)
	if err != nil {
		return err
	}
	r.URL = c.ui.job(c.names.runner(id))
	e := &entry{id: id, recorded: closed(), runner: r, way: way, registered: job.JobModifyIndex, priority: runtime.PriorityRefill}
	if job.Priority >= c.config.priority(runtime.PriorityWaiting) {
		e.priority = runtime.PriorityWaiting
	}
	c.entries[id] = e
	return nil
}

// adoptOrphan takes in a runner that was ready, and whose job was purged while
// no server ran. The caller holds mu.
func (c *Cluster) adoptOrphan(id runtime.RunnerID, r record) {
	c.entries[id] = &entry{id: id, recorded: closed(), registered: 1, runner: runtime.Runner{
		ID: id, State: runtime.RunnerStarting, Environment: runtime.Environment{ID: r.environment}, CreatedAt: r.at,
	}}
}

func closed() chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// takeEntry takes in what a listing says of one runner, and reports whether
// that changes what Runners says. What changed while the lists were asked for is
// left to the next one. The caller holds mu.
func (c *Cluster) takeEntry(l *listing, e *entry) bool {
	if e.registered == 0 {
		return false // Start has a look when it is
	}
	job := l.jobs[e.id]
	allocations := l.allocations[e.id]
	if len(allocations) > 0 {
		c.logFailures(e, allocations)
		e.allocations = allocations
	}
	if e.removing {
		e.settled = allEnded(allocations)
		return false
	}
	if e.change > l.begun || e.registered > l.jobsIndex {
		c.lookSoon()
		return false
	}
	before := e.runner
	c.takeVariable(l, e)
	s := sight{
		purged: job == nil, stopped: job != nil && job.Stop, dead: job == nil || job.Status == "dead",
		allocations: allocations, evaluations: l.evaluations[c.names.runner(e.id)], draining: c.drains, ready: e.ready,
	}
	o := judge(s)
	e.oom = max(e.oom, o.oom)
	e.allocation, e.node = "", ""
	e.runs = o.allocation != nil && runs(o.allocation, e.way.Task)
	if o.allocation != nil {
		e.allocation, e.node, e.restarts = o.allocation.ID, o.allocation.NodeID, restarts(o.allocation)
		if e.ready != nil && e.ready.allocation == "" { // its next claim says so again
			e.ready.allocation, e.ready.restarts = e.allocation, e.restarts
		}
		e.runner.Ports = ports(o.allocation)
		if o.state == runtime.RunnerIdle && !e.runner.Claim.Held() && c.drains(o.allocation.NodeID) {
			o = outcome{state: runtime.RunnerGone, reason: runtime.GoneDrained, message: "its node is being drained"}
		}
	}
	if o.state == runtime.RunnerIdle && e.runner.Claim.Held() {
		o.state = runtime.RunnerClaimed
	}
	moved := e.advance(o.state)
	if moved && o.state == runtime.RunnerGone {
		e.runner.GoneReason, e.runner.Message = o.reason, o.message
	}
	if e.runner.State == runtime.RunnerStarting {
		e.runner.Message = o.message
		if o.message == "" && c.bridges.starves(e.id) {
			e.runner.Message = fmt.Sprintf("it waits for a connection: runners in use have all %d of --nomad-bridges (rockpool doctor says how many Nomad takes)", c.config.Bridges)
		}
	}
	return moved || e.runner.Message != before.Message
}

// logFailures logs why allocations failed that hadn't when they were listed
// last. The caller holds mu.
func (c *Cluster) logFailures(e *entry, listed []*api.AllocationListStub) {
	for _, a := range listed {
		known := func(before *api.AllocationListStub) bool {
			return before.ID == a.ID && before.ClientStatus == a.ClientStatus
		}
		if a.ClientStatus == api.AllocClientStatusFailed && !slices.ContainsFunc(e.allocations, known) {
			c.log.Warn("a runner's task failed", zap.String("runner", string(e.id)), zap.String("allocation", a.ID), zap.String("nomad", nomadsWords(a)))
		}
	}
}

// takeVariable takes in that a runner was ready, and its claim. The caller holds
// mu.
func (c *Cluster) takeVariable(l *listing, e *entry) {
	v := l.variables[e.id]
	if v == nil || v.ModifyIndex <= e.variable {
		return
	}
	r, read := l.claims[e.id]
	if v.ModifyIndex > v.CreateIndex && !read {
		return // it was written just now: the next list reads it
	}
	e.variable = v.ModifyIndex
	if e.ready == nil {
		e.ready = &readiness{index: v.CreateIndex, at: time.Unix(0, v.CreateTime)}
	}
	if read {
		e.variable = max(e.variable, r.index)
		e.runner.Claim = r.claim
		e.ready.allocation, e.ready.restarts = r.allocation, r.restarts
	}
}

// allEnded reports whether the processes of all allocations have ended, as their
// clients say, or can't be told of any more.
func allEnded(all []*api.AllocationListStub) bool {
	return !slices.ContainsFunc(all, func(a *api.AllocationListStub) bool {
		switch a.ClientStatus {
		case api.AllocClientStatusComplete, api.AllocClientStatusFailed, api.AllocClientStatusLost:
			return false
		default:
			return true
		}
	})
}

// ports returns where an allocation's ports are reached.
func ports(a *api.AllocationListStub) []runtime.PortMapping {
	if a.AllocatedResources == nil {
		return nil
	}
	var all []runtime.PortMapping
	for _, p := range a.AllocatedResources.Shared.Ports {
		if p.To > 0 {
			all = append(all, runtime.PortMapping{ExposedPort: p.To, Address: address(p.HostIP, p.Value)})
		}
	}
	return all
}
