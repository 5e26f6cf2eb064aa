package tenantusage

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/request"
)

// A WaitingClaim is a claim that waits in its pool's queue, or for its tenant's quota of runners.
type WaitingClaim struct {
	ID            string // it sorts like a [runtime.RunnerID]
	Tenant        runtime.TenantID
	EnvironmentID runtime.EnvironmentID
	Position      int           // 1 is the next one; 0: unknown yet, or it waits for its quota
	EstimatedWait time.Duration // 0: unknown
	Since         time.Time
	ExpiresAt     time.Time // when its WaitFor ends
}

// WaitingClaims returns at most first of the waiting claims after an id, oldest first, and the number of
// all that match.
func (u *Tracker) WaitingClaims(ctx context.Context, filter request.Waiting, first int, after string) (claims []WaitingClaim, total int) {
	for _, w := range u.waiting.all() {
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

// waiting holds the waiting claims. Its methods are safe for concurrent use and don't block.
type waiting struct {
	mu     sync.Mutex // guards claims
	claims map[*waiter]struct{}
}

// A waiter is a claim that may have to wait.
type waiter struct {
	claim WaitingClaim                     // without its position
	place func(context.Context) pool.Place // its position in the pool's queue
	free  bool                             // not counted against quotas
	bytes int64                            // of memory, while it waits

	waits, answered bool // guarded by Tracker.mu
	kept            *quota.Kept
}

// add adds a claim that begins to wait, and gives it an id.
func (all *waiting) add(w *waiter) {
	w.claim.ID = runtime.NewWaitingID()
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.claims == nil {
		all.claims = map[*waiter]struct{}{}
	}
	all.claims[w] = struct{}{}
}

// remove removes a claim that no longer waits.
func (all *waiting) remove(w *waiter) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.claims, w)
}

// all returns the waiting claims, oldest first.
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
