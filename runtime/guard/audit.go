package guard

import (
	"context"
	"errors"
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

// recorded are the operations that add entries. While the audit log is full, each fails before it
// acts. revokeToken adds an entry too, but never fails for that reason: a leaked token must always
// be revocable.
var recorded = map[access.Operation]bool{
	"putEnvironment": true, "deleteEnvironment": true,
	"claimRunner": true, "cancelTicket": true, "releaseRunner": true, "updateFiles": true, "moveFile": true, "uploadFile": true,
	"run": true, "startExecution": true, "signalExecution": true, "cancelExecution": true, "cancelBatch": true,
	"createToken": true, "createGrant": true, "putTenant": true, "deleteTenant": true,
	"drainCluster": true,
}

// record appends the audit entry of an operation on an object of a tenant. The entry of a caller
// for one tenant always belongs to that tenant, whichever object it named.
func record[I ~string](ctx context.Context, g *Guard, op access.Operation, kind string, id I, tenant runtime.TenantID, err error, details ...audit.Detail) {
	if g.log == nil || errors.Is(err, audit.ErrFull) || errors.Is(err, audit.ErrEnded) {
		return
	}
	p := access.FromContext(ctx)
	if !p.AllTenants {
		tenant = p.Tenant
	}
	if err != nil && !g.log.Refusal(p.ID) {
		return
	}
	g.log.Append(audit.Entry{
		Tenant: tenant, Actor: actor(p), Role: string(p.Role), Action: string(op), ObjectKind: kind, ObjectID: string(id),
		Address: p.Address, Outcome: audit.OutcomeOf(ctx, err), Detail: withAPI(details, p),
	})
}

// resumption returns the detail of a claim that resumed an earlier one of the same holder.
func resumption(resumed bool) []audit.Detail {
	if !resumed {
		return nil
	}
	return []audit.Detail{audit.Words("resumed", []string{"true"})}
}

// withAPI adds the compatible API that the caller used, if any.
func withAPI(details []audit.Detail, p access.Principal) []audit.Detail {
	if p.API == "" {
		return details
	}
	return append(details, audit.Words("api", []string{p.API}))
}

// recording returns a function that records an operation on an object, with its outcome. The object
// need not exist.
func (g *Guard) recording(ctx context.Context, op access.Operation, kind, id string) func(outcome *error) {
	tenant := audit.WholeServer
	if g.log != nil && access.FromContext(ctx).AllTenants {
		tenant = g.tenantOf(ctx, kind, id) // before the operation, which may delete the object
	}
	return func(outcome *error) { record(ctx, g, op, kind, id, tenant, *outcome) }
}

// tenantOf returns the tenant of an object, or WholeServer if it is unknown.
func (g *Guard) tenantOf(ctx context.Context, kind, id string) runtime.TenantID {
	switch kind {
	case ofEnvironment:
		if env, ok := g.engine.Environment(runtime.EnvironmentID(id)); ok {
			return env.Tenant
		}
	case ofRunner:
		if r, ok := g.engine.Runner(runtime.RunnerID(id)); ok {
			return r.Tenant()
		}
	case ofExecution:
		if x, err := g.engine.Execution(ctx, runtime.ExecutionID(id), 0); err == nil {
			return x.Tenant
		}
	case ofBatch:
		if b, err := g.engine.Batch(ctx, runtime.BatchID(id)); err == nil {
			return b.Tenant
		}
	case ofTicket:
		if tenant, err := g.engine.TicketTenant(runtime.TicketID(id)); err == nil {
			return tenant
		}
	}
	return audit.WholeServer
}

// owner returns the tenant of a newly made object, or WholeServer if the operation failed.
func owner(tenant runtime.TenantID, err error) runtime.TenantID {
	if err != nil {
		return audit.WholeServer
	}
	return tenant
}

// tokenTenant returns the tenant whose audit log contains a token's entries.
func tokenTenant(t access.Token) runtime.TenantID {
	if t.AllTenants {
		return audit.WholeServer
	}
	return t.Tenant
}

// actor returns the caller as an actor of the audit log. A grant has its own id, as in
// createGrant's entry.
func actor(p access.Principal) audit.Actor {
	a := audit.Actor{Kind: audit.ActorKind(p.Kind), ID: p.ID, Name: p.Name}
	if p.Grant != nil {
		a.ID = p.Grant.ID
	}
	return a
}

// AuditLog returns the entries of the caller's tenant, without those of a deleted tenant with the
// same name. The time of the new tenant's creation divides them, in milliseconds. A caller for all
// tenants gets the entries of all, or of the filter's tenant. See [audit.Log.Entries].
func (g *Guard) AuditLog(ctx context.Context, filter audit.Filter, first int, after string, charge func(bytes int) error) (audit.Page, error) {
	p, err := g.caller(ctx, "auditLog")
	if err != nil {
		return audit.Page{}, err
	}
	var sees bool
	if filter.Tenant, sees = narrowed(p, filter.Tenant); !sees {
		return audit.Page{}, nil
	}
	if t, _ := g.book.Tenant(p.Tenant); !p.AllTenants && t.ID != runtime.DefaultTenant && filter.From.Before(t.CreatedAt) {
		filter.From = t.CreatedAt
	}
	return g.log.Entries(ctx, filter, first, after, charge)
}

// failuresPerSecond bounds the entries about unknown callers, since anybody can cause them.
const failuresPerSecond = 5

// FailureRecorder returns a function that records failed authentications, at most failuresPerSecond.
func (g *Guard) FailureRecorder() func(address netip.Addr, err error) {
	limit := rate.NewLimiter(failuresPerSecond, failuresPerSecond)
	return func(address netip.Addr, err error) {
		select {
		case <-g.engine.Restored():
		default:
			return // the log isn't written yet
		}
		if g.log == nil || !limit.Allow() || g.log.Room(audit.WholeServer) != nil {
			return
		}
		g.log.Append(audit.Entry{Tenant: audit.WholeServer, Actor: audit.Actor{Kind: audit.Unknown}, Action: "authenticate", Address: address, Outcome: audit.Outcome(runtime.CodeOf(err))})
	}
}
