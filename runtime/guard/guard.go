// Package guard is the engine with permission checks and audit entries. Every door calls it instead
// of the engine: the API's resolvers, subscriptions and downloads, and other systems' APIs.
//
// The caller is in the context (see package access). A method that is recorded first checks
// whether the audit log has space for the entry (CLUSTER_UNAVAILABLE). Then each method checks
// whether the caller may use the operation at all (FORBIDDEN), and whether it sees the object. For
// an object that it doesn't see, the error is the same as for an id that never existed. Methods are safe for
// concurrent use.
package guard

import (
	"context"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/runtime/store"
)

// A Guard lets callers use an engine as far as they are permitted.
type Guard struct {
	engine *engine.Engine
	book   *identity.Registry
	log    *audit.Log // nil: nothing is recorded
}

// New returns the guard of an engine. book contains the tenants. log records what callers change;
// nil: nothing is recorded.
func New(e *engine.Engine, book *identity.Registry, log *audit.Log) *Guard {
	return &Guard{engine: e, book: book, log: log}
}

// caller returns the caller if it may use an operation, and if the audit log has room for the entry.
func (g *Guard) caller(ctx context.Context, op access.Operation) (access.Principal, error) {
	p := access.FromContext(ctx)
	if g.log != nil && recorded[op] {
		tenant := audit.WholeServer
		if !p.AllTenants {
			tenant = p.Tenant
		}
		if err := g.log.Room(tenant); err != nil {
			return p, err
		}
	}
	return p, p.Allow(op)
}

// Allowed returns the caller if it may use an operation, or why not. It checks no object.
func (g *Guard) Allowed(ctx context.Context, op access.Operation) (access.Principal, error) {
	return g.caller(ctx, op)
}

// runner returns a runner that the caller sees, or RUNNER_GONE.
func (g *Guard) runner(p access.Principal, id runtime.RunnerID) (runtime.Runner, error) {
	if r, ok := g.engine.Runner(id); ok && p.SeesRunner(r) {
		return r, nil
	}
	return runtime.Runner{}, runtime.Gone(id)
}

// allowRunner returns an error unless the caller may use an operation on a runner.
func (g *Guard) allowRunner(ctx context.Context, op access.Operation, id runtime.RunnerID) error {
	p, err := g.caller(ctx, op)
	if err == nil {
		_, err = g.runner(p, id)
	}
	return err
}

// execution returns an execution that the caller sees, or EXECUTION_NOT_FOUND.
func (g *Guard) execution(ctx context.Context, p access.Principal, id runtime.ExecutionID) (runtime.Execution, error) {
	x, err := g.engine.Execution(ctx, id, 0)
	if err == nil && !p.SeesExecution(x) {
		return runtime.Execution{}, store.NotFound(id)
	}
	return x, err
}

// AllowExecution returns an error unless the caller may use an operation on an execution.
func (g *Guard) AllowExecution(ctx context.Context, op access.Operation, id runtime.ExecutionID) error {
	p, err := g.caller(ctx, op)
	if err == nil {
		_, err = g.execution(ctx, p, id)
	}
	return err
}

// allowBatch returns an error unless the caller may use an operation on a batch.
func (g *Guard) allowBatch(ctx context.Context, op access.Operation, id runtime.BatchID) error {
	p, err := g.caller(ctx, op)
	if err != nil {
		return err
	}
	b, err := g.engine.Batch(ctx, id)
	if err == nil && !p.SeesBatch(b) {
		return store.NoBatch(id)
	}
	return err
}

// scope returns the tenant to which a caller's lists are restricted; nil: all tenants.
func scope(p access.Principal) *runtime.TenantID {
	if tenant, one := p.Scope(); one {
		return &tenant
	}
	return nil
}

// narrowed returns the only tenant whose objects a list contains, or nil for all tenants. The
// tenant in the request is asked. If the caller sees nothing of that tenant, sees is false, and its
// list is empty.
func narrowed(p access.Principal, asked *runtime.TenantID) (tenant *runtime.TenantID, sees bool) {
	if asked == nil {
		return scope(p), true
	}
	return asked, p.SeesTenant(*asked)
}

// Go runs f in a goroutine that the engine waits for; see [engine.Engine.Go].
func (g *Guard) Go(ctx context.Context, f func(context.Context)) error { return g.engine.Go(ctx, f) }

// CountSubscription counts a subscription; see [engine.Engine.CountSubscription].
func (g *Guard) CountSubscription(kind engine.WatchKind) (left func()) {
	return g.engine.CountSubscription(kind)
}
