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
	slotWait    = 10 * time.Second // how long a call waits for a slot
	agentWithin = 30 * time.Second // how long it then has
)

// callLimiter limits concurrent calls of one kind: in one runner, of one tenant, and in total. A tenant
// gets its share of the total, and always a first slot. So slow runners of one tenant never keep
// another tenant from its calls.
type callLimiter struct {
	what string // the kind's plural

	mu      sync.Mutex // guards the fields below
	tenants quota.Bound
	runners map[runtime.RunnerID]int
	freed   chan struct{} // closed when a slot becomes free
}

func newCallLimiter(what string, total int64) *callLimiter {
	return &callLimiter{what: what, tenants: quota.Bound{Limit: total}, runners: map[runtime.RunnerID]int{}, freed: make(chan struct{})}
}

// within calls do when there is a slot for it, with a context that ends after agentWithin. It
// returns LIMIT_EXCEEDED if there is none for slotWait.
func (p *callLimiter) within(ctx context.Context, id runtime.RunnerID, tenant runtime.TenantID, do func(ctx context.Context) error) error {
	late := time.After(slotWait)
	for {
		freed, full := p.take(id, tenant)
		if full == nil {
			break
		}
		select {
		case <-freed:
		case <-late:
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

// take takes a slot, or returns why there is none, and a channel that is closed when one becomes
// free.
func (p *callLimiter) take(id runtime.RunnerID, tenant runtime.TenantID) (freed <-chan struct{}, full error) {
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

func (p *callLimiter) leave(id runtime.RunnerID, tenant runtime.TenantID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tenants.Release(tenant)
	if p.runners[id]--; p.runners[id] == 0 {
		delete(p.runners, id)
	}
	close(p.freed)
	p.freed = make(chan struct{})
}
