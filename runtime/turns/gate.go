package turns

import (
	"cmp"
	"context"
	"sync"

	"github.com/rockpool/rockpool/runtime"
)

// A Gate limits how many runners are started at once. The others wait in the order
// of a [Queue]: by priority, then by turns of their tenants, then by turns of a tenant's
// environments, then by age.
type Gate struct {
	mu      sync.Mutex // guards all below, and what its tickets say
	free    int
	waiting Queue[runtime.EnvironmentID, *Ticket]
	came    uint64 // counts those that have waited
}

// NewGate returns a gate for so many at once.
func NewGate(free int) *Gate {
	return &Gate{free: free, waiting: Queue[runtime.EnvironmentID, *Ticket]{
		Compare: func(a, b *Ticket) int { return cmp.Compare(a.came, b.came) },
	}}
}

// Waiting returns how many wait.
func (g *Gate) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting.Len()
}

// A Ticket is one runner's, for each of its starts. It knows the priority that the
// runner has now. Its methods may be called at once, but for Enter.
type Ticket struct {
	gate        *Gate
	tenant      runtime.TenantID
	environment runtime.EnvironmentID

	// Guarded by gate.mu.
	priority runtime.Priority
	came     uint64
	let      chan struct{} // closed when it is let in; nil: it doesn't wait
}

// Ticket returns a new one, for a runner of an environment.
func (g *Gate) Ticket(env runtime.Environment, priority runtime.Priority) *Ticket {
	return &Ticket{gate: g, tenant: env.Tenant, environment: env.ID, priority: priority}
}

// Priority returns the one that was set last.
func (t *Ticket) Priority() runtime.Priority {
	t.gate.mu.Lock()
	defer t.gate.mu.Unlock()
	return t.priority
}

// SetPriority gives the runner another priority, also while it waits.
func (t *Ticket) SetPriority(priority runtime.Priority) {
	t.gate.mu.Lock()
	defer t.gate.mu.Unlock()
	waits := t.gate.waiting.Remove(t.tenant, t.environment, t.priority, t)
	t.priority = priority
	if waits {
		t.gate.waiting.Push(t.tenant, t.environment, priority, t)
	}
}

// Enter waits until the runner may be started, and returns what makes room for
// another one then. It returns ctx's cause if that ends before.
func (t *Ticket) Enter(ctx context.Context) (leave func(), err error) {
	g := t.gate
	g.mu.Lock()
	let := make(chan struct{})
	g.came++
	t.came, t.let = g.came, let
	g.waiting.Push(t.tenant, t.environment, t.priority, t)
	g.next()
	g.mu.Unlock()
	select {
	case <-let:
		return g.leave, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.waiting.Remove(t.tenant, t.environment, t.priority, t) { // it was let in at the same moment
		g.free++
		g.next()
	}
	return nil, context.Cause(ctx)
}

func (g *Gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free++
	g.next()
}

// next lets in as many as there is room for. The caller holds mu.
func (g *Gate) next() {
	for g.free > 0 {
		t, ok := g.waiting.Pop()
		if !ok {
			return
		}
		g.free--
		close(t.let)
	}
}
