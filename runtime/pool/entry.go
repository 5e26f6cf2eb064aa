package pool

import (
	"context"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// An entry is a runner and what the owner does with it.
type entry struct {
	runtime.Runner
	wished    time.Time        // when this owner requested the start; zero: an earlier owner did
	idleSince time.Time        // when this owner first saw it idle; zero: an earlier owner did
	seen      int              // by the list of this number
	priority  runtime.Priority // that its start was asked for with
	busy      int              // uses under way
	working   int              // works of it that haven't come back
	work      chan struct{}    // closed when the last of them is done; nil: there was none
	change    int              // the last change of ours
	skipped   bool             // a list could not be believed about it
	silent    stall            // its start takes its time, and the cluster doesn't say why
	renewal   renewal          // of its claim
	whenGone  []func()         // to be called then
}

// advance makes next of a runner, announces it, and reports true; nothing changes where
// the runner's state isn't before next's. No other function changes a runner's state.
func (o *owner) advance(e *entry, next runtime.Runner) bool {
	if !e.State.Before(next.State) {
		return false
	}
	e.Runner = next
	o.changed(e)
	return true
}

// changed notes and announces a change of ours.
func (o *owner) changed(e *entry) {
	o.changes.note(e)
	o.pool.options.Observe(e.Runner)
}

// work runs do in a worker, then done in the owner. Works of one runner follow
// one another.
func (o *owner) work(e *entry, do func(context.Context) error, done func(error)) {
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
		_ = o.pool.tell(ctx, func(o *owner) {
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
