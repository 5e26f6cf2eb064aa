package guard

import (
	"context"
	"net/netip"

	"golang.org/x/time/rate"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/audit"
)

// The kinds of objects in the audit log.
const (
	ofEnvironment = "ENVIRONMENT"
	ofRunner      = "RUNNER"
	ofExecution   = "EXECUTION"
	ofBatch       = "BATCH"
	ofTicket      = "TICKET"
	ofToken       = "TOKEN"
	ofGrant       = "GRANT"
	ofTenant      = "TENANT"
	ofCluster     = "CLUSTER"
)

// record records what a caller did, or wanted to do.
func record[I ~string](ctx context.Context, g *Guard, op access.Operation, kind string, id I, err error) {
	if g.log == nil {
		return
	}
	p := access.Of(ctx)
	g.log.Append(audit.Entry{
		Tenant: p.Tenant, Actor: actor(p), Role: string(p.Role), Action: string(op), ObjectKind: kind, ObjectID: string(id),
		Address: p.Address, Outcome: audit.OutcomeOf(err),
	})
}

// actor returns who acts: of a grant its own id, by which createGrant is found.
func actor(p access.Principal) audit.Actor {
	a := audit.Actor{Kind: audit.ActorKind(p.Kind), ID: p.ID, Name: p.Name}
	if p.Grant != nil {
		a.ID = p.Grant.ID
	}
	return a
}

// AuditLog returns entries of the caller's tenant; see [audit.Log.Entries].
func (g *Guard) AuditLog(ctx context.Context, filter audit.Filter, first int, after string, charge func(bytes int) error) (audit.Page, error) {
	p, err := caller(ctx, "auditLog")
	if err != nil {
		return audit.Page{}, err
	}
	filter.Tenant = scope(p)
	return g.log.Entries(ctx, filter, first, after, charge)
}

// failuresPerSecond bounds how many unknown callers are recorded: anybody can be one.
const failuresPerSecond = 5

// Recording returns what records a caller that showed something that isn't known; of many within a
// second a few.
func (g *Guard) Recording() func(address netip.Addr, err error) {
	limit := rate.NewLimiter(failuresPerSecond, failuresPerSecond)
	return func(address netip.Addr, err error) {
		if g.log != nil && limit.Allow() {
			g.log.Append(audit.Entry{Tenant: runtime.DefaultTenant, Actor: audit.Actor{Kind: audit.Unknown}, Action: "authenticate", Address: address, Outcome: audit.OutcomeOf(err)})
		}
	}
}
