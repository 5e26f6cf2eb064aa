package engine

import (
	"context"

	"github.com/rockpool/rockpool/runtime"
)

// A Drainer is a cluster that is drained through this server: it ends runners
// that nobody holds, starts none, and says so in its status, until it is told
// otherwise. Both methods are safe to repeat; Draining doesn't block.
type Drainer interface {
	SetDraining(ctx context.Context, draining bool) error
	Draining() bool
}

// SetDraining drains the cluster, or ends that. It goes on when the caller
// leaves. INVALID_INPUT: the cluster has its own way.
func (e *Engine) SetDraining(ctx context.Context, draining bool) error {
	d, ok := e.cluster.(Drainer)
	if !ok {
		return runtime.Invalid("draining", "can't be set here: this cluster's nodes are drained by its own means")
	}
	return d.SetDraining(context.WithoutCancel(ctx), draining)
}

// Draining reports whether the cluster is being drained.
func (e *Engine) Draining() bool {
	d, ok := e.cluster.(Drainer)
	return ok && d.Draining()
}
