package engine

import (
	"context"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// DeleteTenant deletes a tenant by calling remove, or returns CONFLICT if it has environments. None can
// be created meanwhile.
func (e *Engine) DeleteTenant(ctx context.Context, id runtime.TenantID, remove func(context.Context, runtime.TenantID) (bool, error)) (bool, error) {
	done, err := e.catalog.beginChange(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	for _, env := range e.Environments() {
		if env.Tenant == id {
			return false, runtime.Errorf(runtime.CodeConflict, "tenant %s still has the environment %s: delete its environments first", id, env.ID)
		}
	}
	removed, err := remove(ctx, id)
	if err == nil {
		e.alerts.Forget(id)
	}
	return removed, err
}

// FreeTenant frees the name of a deleted tenant for a new one. It returns CONFLICT while runners, waiting
// claims or executions of the deleted tenant exist, because the new one would see them. The error
// says which and, if known, when they end. Otherwise FreeTenant removes the spent keys, ended
// tickets, alerts and failures of the deleted tenant.
func (e *Engine) FreeTenant(ctx context.Context, id runtime.TenantID) error {
	conflict := func(format string, args ...any) error {
		return runtime.Errorf(runtime.CodeConflict, "a deleted tenant "+id.String()+" "+format, args...)
	}
	for _, r := range e.Runners(RunnerFilter{}) {
		if r.Tenant() == id {
			return conflict("still holds the runner %s: release it, or choose another name", r.ID)
		}
	}
	if _, waiting := e.WaitingClaims(ctx, WaitingFilter{Tenant: &id}, 0, ""); waiting > 0 {
		return conflict("has %d waiting claims: try again when they have ended, or choose another name", waiting)
	}
	kept, err := e.store.OfTenant(ctx, id)
	switch {
	case err != nil:
		return err
	case kept.Unfinished > 0:
		return conflict("has %d unfinished executions or batches: cancel them, or choose another name", kept.Unfinished)
	case kept.Executions == 0:
		e.tickets.Forget(id)
		e.alerts.Forget(id)
		e.failures.Forget(id)
		return e.store.ForgetSpentKeys(ctx, keysOf(id.String()))
	case e.keep == 0:
		return conflict("left %d executions, which this server keeps forever (--keep-executions 0): choose another name", kept.Executions)
	default:
		return conflict("left %d executions, which are kept until about %s: choose another name, or try again then",
			kept.Executions, kept.LastEnd.Add(e.keep).UTC().Format(time.RFC3339))
	}
}
