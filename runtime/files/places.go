package files

import (
	"context"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/quota"
)

// Limits of calls that an agent can make slow or large. It runs in the runner, so a hostile program
// decides how long it takes.
const (
	maxLists    = 12 // concurrent, in total; a list's memory is limited by quota.Memory
	maxSearches = 64
	maxOfRunner = 2                // concurrent, of one kind in one runner
	placeWait   = 10 * time.Second // how long a call waits for a place
	agentWithin = 30 * time.Second // how long it then has
)

// places limits concurrent calls of one kind: in one runner, of one tenant, and in total. A tenant
// gets its share of the total, and always a first place. So slow runners of one tenant never keep
// another tenant from its calls.
type places struct {
	what string // the kind's plural

	mu      sync.Mutex // guards the fields below
	tenants quota.Bound
	runners map[runtime.RunnerID]int
	freed   chan struct{} // closed when a place becomes free
}

func newPlaces(what string, total int64) *places {
	return &places{what: what, tenants: quota.Bound{Limit: total}, runners: map[runtime.RunnerID]int{}, freed: make(chan struct{})}
}

// within calls do when there is a place for it, with a context that ends after agentWithin. It
// returns LIMIT_EXCEEDED if there is none for placeWait.
func (p *places) within(ctx context.Context, id runtime.RunnerID, tenant runtime.TenantID, do func(ctx context.Context) error) error {
	late := time.NewTimer(placeWait)
	defer late.Stop()
	for {
		freed, full := p.take(id, tenant)
		if full == nil {
			break
		}
		select {
		case <-freed:
		case <-late.C:
			return full
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	defer p.leave(id, tenant)
	ctx, cancel := context.WithTimeoutCause(ctx, agentWithin, runtime.Errorf(runtime.CodeClusterUnavailable, "the agent of runner %s took longer than %v", id, agentWithin))
	defer cancel()
	return do(ctx)
}

// take takes a place, or returns why there is none, and a channel that is closed when one becomes
// free.
func (p *places) take(id runtime.RunnerID, tenant runtime.TenantID) (freed <-chan struct{}, full error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.runners[id]; n >= maxOfRunner {
		return p.freed, runtime.Errorf(runtime.CodeLimitExceeded, "%d %s are already running in runner %s: try again later", n, p.what, id)
	}
	if p.tenants.Acquire(tenant) != nil {
		return p.freed, runtime.Errorf(runtime.CodeLimitExceeded, "the tenant's runners already have its share of this server's %d %s: try again later", p.tenants.Limit, p.what)
	}
	p.runners[id]++
	return nil, nil
}

// leave returns a place.
func (p *places) leave(id runtime.RunnerID, tenant runtime.TenantID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tenants.Release(tenant)
	if p.runners[id]--; p.runners[id] == 0 {
		delete(p.runners, id)
	}
	close(p.freed)
	p.freed = make(chan struct{})
}
