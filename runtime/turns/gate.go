package turns

import (
	"cmp"
	"context"
	"sync"

	"github.com/rockpool/rockpool/runtime"
)

// A Gate limits concurrent work, for example starts of runners. The others wait in the order of a [Queue]: by
// priority, then in turns of their tenants, then in turns of a tenant's keys, then by age. Its
// methods are safe for concurrent use.
type Gate struct {
	mu      sync.Mutex // guards the fields below, and those of its passes
	limit   int
	free    int // negative while more are admitted than a lowered limit allows
	waiting Queue[string, *Pass]
	came    uint64 // counts calls of Enter
	shared  bool
	has     map[runtime.TenantID]int // admitted passes
}

// NewGate returns a gate that admits limit passes concurrently.
func NewGate(limit int) *Gate {
	return &Gate{limit: limit, free: limit, has: map[runtime.TenantID]int{}, waiting: Queue[string, *Pass]{
		Compare: func(a, b *Pass) int { return cmp.Compare(a.came, b.came) },
	}}
}

// NewSharedGate is like NewGate, for work that may last long. A tenant gets one more pass only while
// it has fewer than are free: one tenant alone gets half of them.
func NewSharedGate(limit int) *Gate {
	g := NewGate(limit)
	g.shared = true
	return g
}

// SetLimit changes how many passes the gate admits concurrently. Admitted passes stay admitted.
func (g *Gate) SetLimit(limit int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free += limit - g.limit
	g.limit = limit
	g.next()
}

// Waiting returns how many passes wait.
func (g *Gate) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting.Len()
}

// A Pass belongs to one runner and is used for all its starts. It has the runner's present
// priority. All methods except Enter are safe for concurrent use.
type Pass struct {
	gate   *Gate
	tenant runtime.TenantID
	key    string

	// Guarded by gate.mu.
	priority runtime.Priority
	came     uint64
	let      chan struct{} // closed when it is admitted; nil means that it doesn't wait
}

// Pass returns a new pass for a key of a tenant, for example an environment.
func (g *Gate) Pass(tenant runtime.TenantID, key string, priority runtime.Priority) *Pass {
	return &Pass{gate: g, tenant: tenant, key: key, priority: priority}
}

// Priority returns the priority that was set last.
func (p *Pass) Priority() runtime.Priority {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	return p.priority
}

// SetPriority changes the runner's priority, even while it waits.
func (p *Pass) SetPriority(priority runtime.Priority) {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	waits := p.gate.waiting.Remove(p.tenant, p.key, p.priority, p)
	p.priority = priority
	if waits {
		p.gate.waiting.Push(p.tenant, p.key, priority, p)
	}
}

// Enter waits until the runner may start. It returns a function to call afterwards, which admits
// the next one. It returns ctx's cause if ctx ends first.
func (p *Pass) Enter(ctx context.Context) (leave func(), err error) {
	g := p.gate
	g.mu.Lock()
	let := make(chan struct{})
	g.came++
	p.came, p.let = g.came, let
	g.waiting.Push(p.tenant, p.key, p.priority, p)
	g.next()
	g.mu.Unlock()
	select {
	case <-let:
		return p.leave, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.waiting.Remove(p.tenant, p.key, p.priority, p) { // it was admitted at the same moment
		p.end()
	}
	return nil, context.Cause(ctx)
}

// leave ends an admitted start, and admits the next one.
func (p *Pass) leave() {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	p.end()
}

// end is leave for a caller that holds gate.mu.
func (p *Pass) end() {
	g := p.gate
	g.free++
	if g.has[p.tenant]--; g.has[p.tenant] == 0 {
		delete(g.has, p.tenant)
	}
	g.next()
}

// next admits waiting passes while there is room. The caller holds mu.
func (g *Gate) next() {
	fits := func(p *Pass) bool { return !g.shared || g.has[p.tenant] < g.free }
	for _, level := range g.waiting.Levels() {
		for g.free > 0 {
			p, ok := g.waiting.Take(level, fits)
			if !ok {
				break
			}
			g.free--
			g.has[p.tenant]++
			close(p.let)
		}
	}
}
