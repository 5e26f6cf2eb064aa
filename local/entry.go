package local

import (
	"context"
	"encoding/json"
	"slices"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/local/driver"
	"github.com/rockpool/rockpool/local/evidence"
	"github.com/rockpool/rockpool/local/placing"
	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/fairqueue"
)

// An entry is one runner that the cluster knows. Its first fields never change after newEntry.
type entry struct {
	id          runtime.RunnerID
	environment runtime.EnvironmentID
	driver      *driver.Driver
	task        *taskrunner.Task
	recorded    chan struct{} // closed when the record is stored, or Start failed
	place       *placing.Place
	turn        fairqueue.Slots // capacity 1: held while the record is written to the store, then to memory
	untouched   bool            // the last server registered it and hadn't begun to make it

	// The fields below are guarded by Cluster.mu.
	runner   runtime.Runner
	removing bool                // Remove was called, or the ending server removes it
	forget   bool                // with removing: the record is deleted, too
	events   []runtime.TaskEvent // the latest; replaced, never changed in place
}

// private is the part of a runner's record that only this cluster reads: what it needs to find or
// remove everything of the runner.
type private struct {
	Group string           `json:"group"` // as of the runner's creation: the parent is a setting and may change
	Task  taskrunner.State `json:"task"`
}

// newEntry returns the entry of a runner. Without a group it gets one below this server's parent;
// without a stored task state its task is PENDING.
func (c *Cluster) newEntry(r runtime.Runner, priority runtime.Priority, p private) *entry {
	if p.Task.Phase == "" {
		p.Task.Phase = taskrunner.Pending
	}
	if p.Group == "" {
		p.Group = sandbox.Group(c.config.CgroupParent, string(r.ID))
	}
	e := &entry{
		id:          r.ID,
		environment: r.Environment.ID,
		recorded:    make(chan struct{}),
		turn:        make(fairqueue.Slots, 1),
		runner:      r,
	}
	own := &owner{c, e}
	e.driver = driver.New(driver.Config{
		ID: r.ID, Environment: r.Environment, Group: p.Group, Host: c.host, Images: c.images,
		Network:  c.network.Runner(r.ID, p.Group, r.Environment.Network, r.Ports, own),
		Counters: evidence.New(c.config.Logger.With(zap.String("runner", string(r.ID))), r.Environment.Isolation == runtime.IsolationGVisor),
		Loaded:   own.Loaded,
	})
	e.place = c.placer.Place(r, priority, func(ctx context.Context) (bool, error) { return c.held(ctx, e) })
	e.task = c.newTask(e, p.Task)
	e.place.Task = e.task
	for _, event := range p.Task.Events {
		e.record(event)
	}
	return e
}

// record adds an event that clients may see. The caller holds Cluster.mu.
func (e *entry) record(event taskrunner.Event) {
	if public, ok := event.Public(); ok {
		e.events = append(slices.Clone(e.events[max(0, len(e.events)-runtime.KeptTaskEvents+1):]), public)
	}
}

// held reports whether a claim holds a runner. It waits for a claim that is being stored: a client
// whose claim was confirmed keeps the runner.
func (c *Cluster) held(ctx context.Context, e *entry) (held bool, err error) {
	err = e.turn.Do(ctx, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		held = e.runner.Claim.Held()
		return nil
	})
	return held, err
}

// An owner shows a runner's network ports and preloaded interpreter in its entry.
type owner struct {
	c *Cluster
	e *entry
}

// PortsMapped implements access.Owner.
func (o *owner) PortsMapped(at []runtime.PortMapping) {
	o.c.mu.Lock()
	o.e.runner.Ports = at
	o.c.mu.Unlock()
	o.c.changes.Send(o.e.environment)
}

// Loaded records the interpreter that the runner has preloaded.
func (o *owner) Loaded(what runtime.Loaded) {
	o.c.mu.Lock()
	o.e.runner.Loaded = &what
	o.c.mu.Unlock()
}

// Ending implements access.Owner.
func (o *owner) Ending() bool {
	o.c.mu.Lock()
	defer o.c.mu.Unlock()
	return o.e.removing || !o.e.runner.State.Before(runtime.RunnerStopping)
}

// Stop implements access.Owner.
func (o *owner) Stop(end taskrunner.End) { o.e.task.Stop(end) }

// TaskEvents implements runtime.Cluster, from memory.
func (c *Cluster) TaskEvents(_ context.Context, id runtime.RunnerID) ([]runtime.TaskEvent, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[id]; e != nil {
		return e.events, nil
	}
	gone, _ := c.past.Find(id)
	return gone.Events, nil
}

// put stores r with its task's state as e's record. The caller holds e.turn, or is Start.
func (c *Cluster) put(ctx context.Context, e *entry, r runtime.Runner, state taskrunner.State) error {
	text, err := json.Marshal(private{Group: e.driver.Group, Task: state})
	if err != nil {
		return err
	}
	return c.config.Store.PutRunner(ctx, r, text)
}
