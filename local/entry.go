package local

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/local/evidence"
	"github.com/rockpool/rockpool/local/network/ports"
	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/turns"
)

// An entry is one runner that the cluster knows.
type entry struct {
	id          runtime.RunnerID
	environment runtime.EnvironmentID
	group       string
	task        *taskrunner.Task
	counters    *evidence.Counters
	recorded    chan struct{} // closed when Start has stored the record, or failed
	ticket      *turns.Ticket // for its starts, with the priority that it was asked for with last
	turn        turns.Slots   // of who writes the record: store, then memory
	untouched   bool          // the last server wished for it, and had not begun to make it

	// Guarded by Cluster.mu.
	runner     runtime.Runner
	allocation runtime.AllocationID // its place; "" until it has one
	handed     bool                 // its task is led
	removing   bool                 // Remove was called, or the server's end removes it
	forget     bool                 // with removing: nothing is to be left of it, not even its record
	lost       bool                 // it wasn't there when this server came
	leaked     bool                 // what is left of it could not be removed
	address    netip.Addr           // at which the machine reaches it, with a network
	unmapped   []ports.Mapping      // ports that it had and that could not be mapped again; nil: none
	fenced     uint64               // when the sandbox started whose packet filter is to be there; 0: there is none
	slot       int                  // of its user ids, if they aren't a listening helper's
	root       string               // that its sandbox was made around
	events     []runtime.TaskEvent  // the latest; never changed in place
}

// private is what the record of a runner says beside the runner itself: all
// that is needed to find again, or remove, what there is of it.
type private struct {
	Group string           `json:"group"`
	Task  taskrunner.State `json:"task"`
}

// newEntry returns the entry of a runner whose task is in a state.
func (c *Cluster) newEntry(r runtime.Runner, priority runtime.Priority, state taskrunner.State) *entry {
	e := &entry{
		id:          r.ID,
		environment: r.Environment.ID,
		group:       sandbox.Group(c.config.CgroupParent, string(r.ID)),
		ticket:      c.gate.Ticket(r.Environment.ID, priority),
		recorded:    make(chan struct{}),
		turn:        make(turns.Slots, 1),
		counters:    evidence.New(c.log.With(zap.String("runner", string(r.ID))), r.Environment.Isolation == runtime.IsolationGVisor),
		runner:      r,
	}
	e.task = c.newTask(e, state)
	for _, event := range state.Events {
		e.tell(event)
	}
	return e
}

// tell notes an event that clients are told of. The caller holds Cluster.mu.
func (e *entry) tell(event taskrunner.Event) {
	if told, is := event.Told(); is {
		e.events = append(slices.Clone(e.events[max(0, len(e.events)-runtime.KeptTaskEvents+1):]), told)
	}
}

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

// put stores r, with its task's state, as e's record.
func (c *Cluster) put(ctx context.Context, e *entry, r runtime.Runner, state taskrunner.State) error {
	text, err := json.Marshal(private{Group: e.group, Task: state})
	if err != nil {
		return err
	}
	return c.config.Store.PutRunner(ctx, r, text)
}
