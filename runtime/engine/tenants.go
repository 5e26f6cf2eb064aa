package engine

import (
	"context"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// FreeTenant returns CONFLICT as long as something is there of a deleted tenant with this name: a new
// one would see it. The error says what it is, and until when.
func (e *Engine) FreeTenant(ctx context.Context, id runtime.TenantID) error {
	conflict := func(format string, args ...any) error {
		return runtime.Errorf(runtime.CodeConflict, "a deleted tenant "+id.String()+" "+format, args...)
	}
	for _, r := range e.Runners(RunnerFilter{}) {
		if r.Tenant() == id {
			return conflict("still holds the runner %s: release it, or choose another name", r.ID)
		}
	}
	kept, err := e.store.OfTenant(ctx, id)
	switch {
	case err != nil:
		return err
	case kept.Unfinished > 0:
		return conflict("has %d executions or batches that haven't ended: cancel them, or choose another name", kept.Unfinished)
	case kept.Executions == 0:
		return nil
	case e.keep == 0:
		return conflict("left %d executions, which this server keeps for ever (--keep-executions 0): choose another name", kept.Executions)
	default:
		return conflict("left %d executions, which are kept until about %s: choose another name, or try again then",
			kept.Executions, kept.LastEnd.Add(e.keep).UTC().Format(time.RFC3339))
	}
}
