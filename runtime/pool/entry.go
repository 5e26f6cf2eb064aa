package pool

import (
	"context"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// An entry is a runner and the loop's bookkeeping for it.
type entry struct {
	runtime.Runner
	wished    time.Time        // when this loop requested the start; the zero time means an earlier server's did
	idleSince time.Time        // when this loop first saw it idle; the zero time means an earlier server's did
	seen      int              // number of the latest list that contained it
	priority  runtime.Priority // of its start
	busy      int              // uses in progress
	working   int              // unfinished workers for it
	work      chan struct{}    // closed when the latest worker is done; nil means there was none
	change    int              // number of the loop's latest change
	skipped   bool             // a list was stale about it
	silent    stall            // its start takes long, and the cluster gives no reason
	renewal   renewal          // of its claim
	whenGone  []func()         // called once it is gone
}

// advance changes a runner to next, announces it, and returns true. It does nothing and returns false
// unless next's state is later than the runner's. No other function changes a runner's state.
func (o *loop) advance(e *entry, next runtime.Runner) bool {
	if !e.State.Before(next.State) {
		return false
	}
	e.Runner = next
	o.changed(e)
	return true
}

// changed records and announces a change that the loop made.
func (o *loop) changed(e *entry) {
	o.changes.note(e)
	o.pool.options.Observe(e.Runner)
}

// work runs do in a worker, which Run waits for, and then done in the loop. The workers of one runner
// run one after the other.
func (o *loop) work(e *entry, do func(context.Context) error, done func(error)) {
	previous := e.work
	current := make(chan struct{})
	e.work = current
	e.working++
	o.spawn(func(ctx context.Context) {
		defer close(current)
		if previous != nil {
			<-previous
		}
		err := do(ctx)
		_ = o.pool.send(ctx, func(o *loop) {
			e.working--
			o.changes.note(e)
			done(err)
			if e.skipped && e.working == 0 {
				e.skipped = false
				o.list()
			}
		})
	})
}
