package pool

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// Intervals of listing the cluster's runners without a hint, and after an error.
const (
	relist      = 30 * time.Second
	relistError = time.Second
)

// A listing is the state of reading the cluster's runners, one list at a time.
type listing struct {
	taken    int       // lists that were reconciled
	underway bool      // a list is running
	again    bool      // start another list when this one ends
	alarmed  bool      // the running list was requested by the alarm
	err      string    // why the last list failed; "" means it succeeded
	next     time.Time // latest start of the next list
}

// listed reports whether a list has succeeded. Before that, no runner is started or stopped.
func (l *listing) listed() bool { return l.taken > 0 }

// begin reports whether a list is to begin now. If one is running, another will follow it.
func (l *listing) begin(now time.Time) bool {
	if l.underway {
		l.again = true
		return false
	}
	l.underway, l.next = true, now.Add(relist)
	return true
}

func (l *listing) end(now time.Time, err error) {
	l.underway = false
	l.alarmed = l.alarmed && l.again
	l.err = ""
	if err != nil {
		l.err = "the cluster doesn't answer: " + err.Error()
		l.next = now.Add(relistError)
	}
}

// changes counts the loop's changes of runners. A list that began before a change is stale about
// that runner and isn't used for it.
type changes struct {
	last    int
	removed map[runtime.RunnerID]int // number of the change that removed a runner
}

func (c *changes) note(e *entry) {
	c.last++
	e.change = c.last
}

// forget drops the removals that a list begun at a change already reflects.
func (c *changes) forget(begun int) {
	for id, change := range c.removed {
		if change <= begun {
			delete(c.removed, id)
		}
	}
}

// list reads the cluster's runners in a worker and reconciles them.
func (o *loop) list() {
	if !o.listing.begin(time.Now()) {
		return
	}
	begun := o.changes.last
	env := o.goal.env.ID
	o.spawn(func(ctx context.Context) {
		runners, err := o.pool.options.Cluster.Runners(ctx, env)
		_ = o.pool.send(ctx, func(o *loop) {
			o.listing.end(time.Now(), err)
			switch {
			case err == nil:
				o.reconcile(runners, begun)
			case !errors.Is(err, context.Canceled):
				o.pool.options.Logger.Warn("runners could not be listed; trying again", zap.String("environment", string(env)), zap.Error(err))
			}
			if o.listing.again {
				o.listing.again = false
				o.list()
			}
		})
	})
}
