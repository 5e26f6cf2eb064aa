package scheduler

import (
	"context"
	"sync"
)

// gate parks workers while the machine drains. Its methods are safe for concurrent use.
type gate struct {
	mu      sync.Mutex // guards the fields below
	paused  bool
	changed chan struct{} // closed and replaced by set when paused changes
	busy    int           // workers with an evaluation
	idle    chan struct{} // made by settled, closed by leave when busy becomes 0
}

// newGate returns an open gate.
func newGate() *gate { return &gate{changed: make(chan struct{})} }

// wait blocks until the gate is open. It returns a channel that is closed when the gate shuts.
func (g *gate) wait(ctx context.Context) (<-chan struct{}, error) {
	for {
		g.mu.Lock()
		paused, changed := g.paused, g.changed
		g.mu.Unlock()
		if !paused {
			return changed, nil
		}
		if err := await(ctx, changed); err != nil {
			return nil, err
		}
	}
}

// enter reports whether the worker may work on an evaluation; if so, it must call leave afterwards.
// The gate may have shut since wait returned.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.paused {
		return false
	}
	g.busy++
	return true
}

// leave ends the work that enter began. The last worker's leave wakes settled.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy--
	if g.busy == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// set shuts the gate, or opens it.
func (g *gate) set(paused bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.paused != paused {
		g.paused = paused
		close(g.changed)
		g.changed = make(chan struct{})
	}
}

// settled waits until no worker has an evaluation.
func (g *gate) settled(ctx context.Context) error {
	g.mu.Lock()
	if g.busy == 0 {
		g.mu.Unlock()
		return nil
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	idle := g.idle
	g.mu.Unlock()
	return await(ctx, idle)
}

// isPaused reports whether the gate is shut.
func (g *gate) isPaused() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.paused
}
