package pool

import (
	"context"
	"fmt"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// yieldedFor is how long a pool doesn't replace a runner that it gave up. After that the replacement
// starts when there is room: claims that still wait for room go first in the cluster's queue.
const yieldedFor = 10 * time.Second

type yielding struct {
	runners int
	until   time.Time
}

// Yield removes the youngest idle runner, so that the cluster has room for a waiting claim of another
// environment, and reports whether it did. A pool with waiting claims keeps its runners.
func (p *Pool) Yield(ctx context.Context) (bool, error) {
	return call(ctx, p, func(o *loop, reply func(bool, error)) {
		var youngest *entry
		for _, e := range o.runners {
			if e.State == runtime.RunnerIdle && (youngest == nil || e.ID > youngest.ID) {
				youngest = e
			}
		}
		if youngest == nil || o.waiting.length() > 0 {
			reply(false, nil)
			return
		}
		o.yielded = yielding{o.yielded.runners + 1, time.Now().Add(yieldedFor)}
		o.stop(youngest, runtime.GoneShrunk, "it gave way to a waiting claim of another environment")
		reply(true, nil)
	})
}

// Lacking returns the runners that waiting claims wait for, and that don't fit into the cluster.
func (p *Pool) Lacking() []runtime.RunnerID {
	if all := p.lacking.Load(); all != nil {
		return *all
	}
	return nil
}

// LastUse returns when a runner was last claimed; the zero time means not since the server's start.
func (p *Pool) LastUse() time.Time {
	if at := p.lastUse.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// spec returns the goal for Plan, without the runners that were given up lately, and when that ends.
func (o *loop) spec(now time.Time) (Spec, time.Time) {
	spec := o.goal.spec()
	if !now.Before(o.yielded.until) {
		o.yielded = yielding{}
		return spec, time.Time{}
	}
	spec.Size = max(spec.Size-o.yielded.runners, 0)
	return spec, o.yielded.until
}

// reason returns why the pool is below its size; "" means it gave up no runner.
func (y yielding) reason() string {
	if y.runners == 0 {
		return ""
	}
	return fmt.Sprintf("%d of its idle runners gave way to waiting claims of other environments; they are replaced when there is room", y.runners)
}
