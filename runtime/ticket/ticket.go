// Package ticket keeps tickets: claims of runners that wait without a connection. Clients poll a
// ticket or watch it. A ticket that no client polls or watches for longer than a grace period is
// cancelled, so that no runner is reserved for a client that has left.
//
// A ticket's state only moves forward:
//
//	WAITING ─ the claim got its runner ─▶ CLAIMED ─ not seen within the grace period ─┐
//	   ├──── its WaitFor passed ─▶ EXPIRED                                            │
//	   ├──── the claim was answered with an error ─▶ FAILED                           ▼
//	   └──── cancelled, or not polled for the grace period ──────────────────────▶ CANCELLED
//
// Tickets are in memory, and don't survive a restart of the server. A claim with an idempotency key
// or for a holder keeps its runner: a later order gets a new ticket for it.
package ticket

import (
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// A Ticket is a claim and its progress.
type Ticket struct {
	ID            runtime.TicketID
	Tenant        runtime.TenantID // owner
	EnvironmentID runtime.EnvironmentID
	State         State
	Position      int              // with WAITING: 1 is the next one; 0 means unknown yet
	EstimatedWait time.Duration    // with WAITING; 0 means unknown
	Runner        runtime.RunnerID // with CLAIMED
	Resumed       bool             // with CLAIMED: an earlier claim of the holder got the runner
	Err           error            // with FAILED, EXPIRED and CANCELLED: why
	CreatedAt     time.Time
	ExpiresAt     time.Time // when its WaitFor ends
	EndedAt       time.Time // when it left WAITING; the zero time means still waiting
}

// A State says where a ticket is in its life. See the diagram in the package comment.
type State string

// The states.
const (
	Waiting   State = "WAITING"   // the claim is in its pool's queue
	Claimed   State = "CLAIMED"   // it has its runner
	Failed    State = "FAILED"    // the claim was answered with an error
	Cancelled State = "CANCELLED" // a client cancelled it, or none polled it
	Expired   State = "EXPIRED"   // no runner became available in time
)

// news reports whether t differs enough from old to be sent to a watcher.
func (t Ticket) news(old Ticket) bool {
	change := t.EstimatedWait - old.EstimatedWait
	return t.ID != old.ID || t.State != old.State || t.Position != old.Position || max(change, -change) > old.EstimatedWait/4
}

// NotFound returns TICKET_NOT_FOUND for an id.
func NotFound(id runtime.TicketID) error {
	return runtime.Errorf(runtime.CodeTicketNotFound, "ticket %q doesn't exist, ended some time ago, or was lost at a restart of the server: claim again", id)
}
