package engine

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
)

// A WaitingClaim is a claim that waits in its pool's queue, or until its tenant's quota of
// runners has room.
type WaitingClaim struct {
	ID            string // it sorts like a [runtime.RunnerID]
	Tenant        runtime.TenantID
	EnvironmentID runtime.EnvironmentID
	Position      int           // 1 is served next, if nothing else comes; 0: it isn't known yet, or it waits for its quota
	EstimatedWait time.Duration // 0: nobody knows
	Since         time.Time
	ExpiresAt     time.Time // when it will have waited for as long as it may
}

// A WaitingFilter selects claims; a zero field selects all.
type WaitingFilter struct {
	Tenant        *runtime.TenantID
	EnvironmentID runtime.EnvironmentID
}

// WaitingClaims returns at most first of the claims that wait and came after an id, oldest
// first, and how many match in all.
func (e *Engine) WaitingClaims(ctx context.Context, filter WaitingFilter, first int, after string) (claims []WaitingClaim, total int) {
	for _, w := range e.holdings.waiting.all() {
		if filter.Tenant != nil && w.claim.Tenant != *filter.Tenant || filter.EnvironmentID != "" && w.claim.EnvironmentID != filter.EnvironmentID {
			continue
		}
		total++
		if w.claim.ID <= after || len(claims) == first {
			continue
		}
		claim, place := w.claim, w.place(ctx)
		claim.Position, claim.EstimatedWait = place.Position, place.EstimatedWait
		claims = append(claims, claim)
	}
	return claims, total
}

// waiting are the claims that wait. Its methods may be called at once, and don't block.
type waiting struct {
	mu     sync.Mutex // guards claims
	claims map[*waiter]struct{}
}

// A waiter is a claim while it may wait.
type waiter struct {
	claim WaitingClaim // without its place
	place func(context.Context) pool.Place
	free  bool // of quotas

	waits, answered bool // guarded by holdings.mu
}

// add adds a claim that begins to wait.
func (all *waiting) add(w *waiter) {
	w.claim.ID = runtime.NewWaitingID()
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.claims == nil {
		all.claims = map[*waiter]struct{}{}
	}
	all.claims[w] = struct{}{}
}

// remove removes a claim that waits no more.
func (all *waiting) remove(w *waiter) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.claims, w)
}

// all returns those that wait, oldest first.
func (all *waiting) all() []*waiter {
	all.mu.Lock()
	claims := make([]*waiter, 0, len(all.claims))
	for w := range all.claims {
		claims = append(claims, w)
	}
	all.mu.Unlock()
	slices.SortFunc(claims, func(a, b *waiter) int { return cmp.Compare(a.claim.ID, b.claim.ID) })
	return claims
}
