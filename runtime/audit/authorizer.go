package audit

import (
	"context"
	"errors"
	"net/netip"
	"sync"

	"golang.org/x/time/rate"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/syncs"
)

// The kinds of objects in the audit log.
const (
	OfEnvironment = "ENVIRONMENT"
	OfRunner      = "RUNNER"
	OfExecution   = "EXECUTION"
	OfBatch       = "BATCH"
	OfTicket      = "TICKET"
	OfToken       = "TOKEN"
	OfGrant       = "GRANT"
	OfTenant      = "TENANT"
	OfCluster     = "CLUSTER"
)

// recorded are the operations that add entries. While the log is full, each fails before it acts.
// revokeToken adds an entry too, but never fails for that reason: a leaked token must always be
// revocable.
var recorded = map[access.Operation]bool{
	"putEnvironment": true, "deleteEnvironment": true,
	"claimRunner": true, "cancelTicket": true, "releaseRunner": true, "updateFiles": true, "moveFile": true, "uploadFile": true,
	"run": true, "startExecution": true, "signalExecution": true, "cancelExecution": true, "cancelBatch": true,
	"createToken": true, "createGrant": true, "putTenant": true, "deleteTenant": true,
	"drainCluster": true,
}

// An Authorizer checks what callers may do, and records what they change. Every method of a service
// that a caller reaches asks it first; see [Do]. The caller is in the context (see package access).
// It is safe for concurrent use.
type Authorizer struct{ log *Log }

// NewAuthorizer returns an Authorizer that records in log. With a nil log, it records nothing.
func NewAuthorizer(log *Log) *Authorizer { return &Authorizer{log} }

// records reports whether the operations of a caller are recorded. Those of the server itself aren't.
func (a *Authorizer) records(p access.Principal) bool {
	return a.log != nil && p.Kind != access.KindServer
}

// Allow returns the caller if it may use an operation. If the operation adds an entry, it returns
// ErrFull or ErrEnded unless the log has room for that. It checks no object.
func (a *Authorizer) Allow(ctx context.Context, op access.Operation) (access.Principal, error) {
	p := access.FromContext(ctx)
	if a.records(p) && recorded[op] {
		tenant := WholeServer
		if !p.AllTenants {
			tenant = p.Tenant
		}
		if err := a.log.Room(tenant); err != nil {
			return p, err
		}
	}
	return p, p.Allow(op)
}

// An Object is the object of an operation.
type Object struct {
	Kind string
	ID   string
	// Find returns the object's tenant, or WholeServer for an unknown one, and an error unless the
	// caller sees the object. For an object that it doesn't see, the error is the same as for an id
	// that never existed.
	Find func(p access.Principal) (runtime.TenantID, error)
}

// Seen returns an object's tenant, with the error missing unless sees is set. Find ends with it.
func Seen(tenant runtime.TenantID, sees bool, missing error) (runtime.TenantID, error) {
	if sees {
		return tenant, nil
	}
	return tenant, missing
}

// errPanicked is the outcome of an operation that panicked.
var errPanicked = errors.New("it panicked")

// Do calls act if the caller may use the operation and sees the object. If the operation adds entries,
// Do records the outcome, also a refusal.
func Do[T any](ctx context.Context, a *Authorizer, op access.Operation, of Object, act func() (T, error)) (result T, err error) {
	tenant := WholeServer
	if recorded[op] {
		defer func() { a.Record(ctx, op, of.Kind, of.ID, tenant, err) }()
	}
	p, err := a.Allow(ctx, op)
	if err == nil {
		tenant, err = of.Find(p)
	} else if recorded[op] && p.AllTenants && a.records(p) && !unrecorded(err) {
		tenant, _ = of.Find(p) // a refused operation is recorded with the object's tenant too
	}
	if err == nil {
		err = errPanicked // unless act returns
		result, err = act()
	}
	return result, err
}

// See returns an error unless the caller may use an operation and sees the object. The operation must
// not be one that adds entries.
func (a *Authorizer) See(ctx context.Context, op access.Operation, of Object) error {
	_, err := Do(ctx, a, op, of, func() (struct{}, error) { return struct{}{}, nil })
	return err
}

// Made is what the entry of an operation says about the object that it makes.
type Made struct {
	Kind    string
	ID      string           // "" until it is known
	Tenant  runtime.TenantID // WholeServer until it is known
	Details []Detail
	Omit    bool // record no success
}

// NewMade returns a Made without details. Its tenant is WholeServer.
func NewMade(kind, id string) *Made { return &Made{Kind: kind, ID: id, Tenant: WholeServer} }

// Make calls act if the caller may use the operation, and records the outcome, also a refusal. act sets the
// fields of made that are known only afterwards.
func (a *Authorizer) Make(ctx context.Context, op access.Operation, made *Made, act func(p access.Principal) error) (err error) {
	defer func() {
		if err != nil || !made.Omit {
			a.Record(ctx, op, made.Kind, made.ID, made.Tenant, err, made.Details...)
		}
	}()
	p, err := a.Allow(ctx, op)
	if err == nil {
		err = errPanicked // unless act returns
		err = act(p)
	}
	return err
}

// Record appends the entry of an operation on an object of a tenant. The entry of a caller for one
// tenant always belongs to that tenant, whichever object it named.
func (a *Authorizer) Record(ctx context.Context, op access.Operation, kind, id string, tenant runtime.TenantID, err error, details ...Detail) {
	p := access.FromContext(ctx)
	if !a.records(p) || unrecorded(err) {
		return
	}
	if !p.AllTenants {
		tenant = p.Tenant
	}
	if err != nil && !a.log.Refusal(p.ID) {
		return
	}
	actor := Actor{Kind: ActorKind(p.Kind), ID: p.ID, Name: p.Name}
	if p.Grant != nil {
		actor.ID = p.Grant.ID // as in createGrant's entry
	}
	if p.API != "" {
		details = append(details, Words("api", []string{p.API}))
	}
	a.log.Append(Entry{
		Tenant: tenant, Actor: actor, Role: string(p.Role), Action: string(op), ObjectKind: kind, ObjectID: id,
		Address: p.Address, Outcome: OutcomeOf(ctx, err), Detail: details,
	})
}

// unrecorded reports whether an operation was refused because the log takes no entry.
func unrecorded(err error) bool { return errors.Is(err, ErrFull) || errors.Is(err, ErrEnded) }

// failuresPerSecond bounds the entries about unknown callers, since anybody can cause them.
const failuresPerSecond = 5

// FailureRecorder returns a function that records failed authentications, at most failuresPerSecond.
// Until begun is closed, it records none, because the log isn't written yet.
func (a *Authorizer) FailureRecorder(begun <-chan struct{}) func(address netip.Addr, err error) {
	limit := rate.NewLimiter(failuresPerSecond, failuresPerSecond)
	return func(address netip.Addr, err error) {
		if !syncs.Closed(begun) || a.log == nil || !limit.Allow() || a.log.Room(WholeServer) != nil {
			return
		}
		a.log.Append(Entry{Tenant: WholeServer, Actor: Actor{Kind: Unknown}, Action: "authenticate", Address: address, Outcome: Outcome(runtime.CodeOf(err))})
	}
}

// Room reports whether entries of a tenant are recorded, and the log has room for one.
func (a *Authorizer) Room(tenant runtime.TenantID) bool {
	return a.log != nil && a.log.Room(tenant) == nil
}

// refusals limits the entries about failed operations of each caller. Failed operations count against no
// quota, so a caller could otherwise cause any number of entries.
type refusals struct {
	mu       sync.Mutex // guards byCaller
	byCaller map[string]*rate.Limiter
}

// Limits of the recorded failed operations of one caller, and of the callers remembered.
const (
	refusalsPerSecond = 5
	refusalsBurst     = 50
	mostLimiters      = 10_000
)

// Refusal reports whether to record a caller's failed operation: at most refusalsPerSecond per
// caller, after a burst of refusalsBurst. A token and its grants count as one caller.
func (l *Log) Refusal(caller string) bool {
	r := &l.refusals
	r.mu.Lock()
	defer r.mu.Unlock()
	limit := r.byCaller[caller]
	if limit == nil {
		if r.byCaller == nil || len(r.byCaller) >= mostLimiters {
			r.byCaller = map[string]*rate.Limiter{}
		}
		limit = rate.NewLimiter(refusalsPerSecond, refusalsBurst)
		r.byCaller[caller] = limit
	}
	return limit.Allow()
}
