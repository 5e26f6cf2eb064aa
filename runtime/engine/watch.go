package engine

import (
	"context"
	"sync"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
)

// PoolStatus returns the newest snapshot of an environment's pool.
func (e *Engine) PoolStatus(id runtime.EnvironmentID) (runtime.PoolStatus, bool) {
	e.mu.Lock()
	p := e.pools[id]
	e.mu.Unlock()
	if p == nil {
		return runtime.PoolStatus{}, false
	}
	return p.Status(), true
}

// WatchPools sends a snapshot of each pool first, then each change, the latest
// only where the receiver is slow; the last of a pool has Deleted. With "" it
// watches all pools, also those to come; with an id that one, and the channel
// is closed after its last. It is closed too when ctx ends.
func (e *Engine) WatchPools(ctx context.Context, id runtime.EnvironmentID) (<-chan runtime.PoolStatus, error) {
	out := make(chan runtime.PoolStatus)
	if id != "" {
		p, err := e.pool(id)
		if err != nil {
			return nil, err
		}
		go func() {
			defer close(out)
			followPool(ctx, p, out)
		}()
		return out, nil
	}
	go func() {
		defer close(out)
		e.followPools(ctx, out)
	}()
	return out, nil
}

// followPools follows every pool, and those that come.
func (e *Engine) followPools(ctx context.Context, out chan<- runtime.PoolStatus) {
	var group sync.WaitGroup
	defer group.Wait()
	followed := map[*pool.Pool]bool{}
	for {
		e.mu.Lock()
		changed := e.poolsChanged
		there := map[*pool.Pool]bool{}
		for _, p := range e.pools {
			there[p] = true
		}
		e.mu.Unlock()
		for p := range there {
			if !followed[p] {
				group.Go(func() { followPool(ctx, p, out) })
			}
		}
		followed = there
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// followPool sends a pool's snapshots until its last, or until ctx ends.
func followPool(ctx context.Context, p *pool.Pool, out chan<- runtime.PoolStatus) {
	for {
		status, changed := p.Watch()
		select {
		case out <- status:
		case <-changed:
			continue // nobody has taken it yet: the newer one goes instead
		case <-ctx.Done():
			return
		}
		if status.Deleted {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
