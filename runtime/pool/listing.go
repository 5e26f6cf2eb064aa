package pool

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// How often the owner looks at the truth without a hint, and after an error.
const (
	relist      = 30 * time.Second
	relistError = time.Second
)

// A listing is how the owner gets the cluster's truth: one list at a time.
type listing struct {
	taken    int       // lists that were taken in
	underway bool      // one is
	again    bool      // list again as soon as the list under way is here
	alarmed  bool      // the list under way is the alarm's
	err      string    // why the last one failed; "": it didn't
	next     time.Time // when the next one begins, at the latest
}

// listed reports whether the truth was seen once: before that nothing is started or
// stopped.
func (l *listing) listed() bool { return l.taken > 0 }

// begin reports whether a list is to begin now. Where one is under way, another follows
// it.
func (l *listing) begin(now time.Time) bool {
	if l.underway {
		l.again = true
		return false
	}
	l.underway, l.next = true, now.Add(relist)
	return true
}

// end notes what came of a list.
func (l *listing) end(now time.Time, err error) {
	l.underway = false
	l.alarmed = l.alarmed && l.again
	l.err = ""
	if err != nil {
		l.err = "the cluster doesn't answer: " + err.Error()
		l.next = now.Add(relistError)
	}
}

// changes counts what the owner did to runners, so that a list that was begun before a
// change is not believed where it contradicts it.
type changes struct {
	last    int
	removed map[runtime.RunnerID]int // the change at which a runner was removed
}

// note counts a change of a runner.
func (c *changes) note(e *entry) {
	c.last++
	e.change = c.last
}

// forget drops the removals that a list that was begun at a change knows of.
func (c *changes) forget(begun int) {
	for id, change := range c.removed {
		if change <= begun {
			delete(c.removed, id)
		}
	}
}

// list has a worker look at the truth.
func (o *owner) list() {
	if !o.listing.begin(time.Now()) {
		return
	}
	begun := o.changes.last
	env := o.goal.env.ID
	o.spawn(func(ctx context.Context) {
		runners, err := o.pool.options.Cluster.Runners(ctx, env)
		_ = o.pool.tell(ctx, func(o *owner) {
			o.listing.end(time.Now(), err)
			switch {
			case err == nil:
				o.reconcile(runners, begun)
			case !errors.Is(err, context.Canceled):
				o.pool.options.Logger.Warn("runners could not be listed", zap.String("environment", string(env)), zap.Error(err))
			}
			if o.listing.again {
				o.listing.again = false
				o.list()
			}
		})
	})
}
