// Package ticket keeps tickets: claims of runners that wait without a connection. The
// holder reads its ticket now and then, or watches it. A ticket whose holder does neither
// for longer than a grace is cancelled, so that no runner waits for a holder that left.
//
// A ticket's state moves forward only:
//
//	WAITING ─ the claim got its runner ─▶ CLAIMED ─ nobody saw that within the grace ─┐
//	   ├──── it waited for as long as it may ─▶ EXPIRED                               │
//	   ├──── the claim was answered with an error ─▶ FAILED                           ▼
//	   └──── its holder cancelled it, or stayed away for the grace ──────────────▶ CANCELLED
//
// Tickets are in memory, and don't survive a restart of the server. A claim with an
// idempotency key or for a holder keeps its runner: another one gets a new ticket for it.
package ticket

import (
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// A Ticket is a claim and how far it is.
type Ticket struct {
	ID            runtime.TicketID
	Tenant        runtime.TenantID // whose it is
	EnvironmentID runtime.EnvironmentID
	State         State
	Position      int              // with WAITING: 1 is served next, if nothing else comes; 0: nobody knows yet
	EstimatedWait time.Duration    // with WAITING; 0: nobody knows
	Runner        runtime.RunnerID // with CLAIMED
	Resumed       bool             // with CLAIMED: another claim of the holder got the runner
	Err           error            // with FAILED, EXPIRED and CANCELLED: why
	CreatedAt     time.Time
	ExpiresAt     time.Time // when it will have waited for as long as it may
	EndedAt       time.Time // when it left WAITING; zero: it hasn't
}

// A State is how far a ticket is. The package's comment draws them.
type State string

// The states.
const (
	Waiting   State = "WAITING"   // the claim is in its pool's queue
	Claimed   State = "CLAIMED"   // it has its runner
	Failed    State = "FAILED"    // it was answered with an error
	Cancelled State = "CANCELLED" // its holder doesn't want it any more, or went away
	Expired   State = "EXPIRED"   // no runner was there for as long as it could wait
)

// States are all, in a fixed order.
func States() []State { return []State{Waiting, Claimed, Failed, Cancelled, Expired} }

// news reports whether a watcher that has got old should get t.
func (t Ticket) news(old Ticket) bool {
	change := t.EstimatedWait - old.EstimatedWait
	return t.ID != old.ID || t.State != old.State || t.Position != old.Position || max(change, -change) > old.EstimatedWait/4
}

// NotFound is the error about a ticket that isn't there.
func NotFound(id runtime.TicketID) error {
	return runtime.Errorf(runtime.CodeTicketNotFound, "no ticket %q: it never was, or it ended and was forgotten, or the server was started anew; claim again", id)
}
