package pool

import (
	"container/heap"
	"time"

	"github.com/rockpool/rockpool/runtime/turns"
)

// A queue holds the claims that wait. Their callers take turns; the claims of one
// caller are in the order in which they came. So between two claims of one
// caller each other caller that waits has one. The zero value is empty. A claim
// that comes or goes costs the logarithm of how many wait, and allocates nothing
// itself.
type queue struct {
	callers   turns.Lanes[string, line]
	deadlines deadlines
	dry       int // how often no runner was idle for one of them
}

// A line is what waits of one caller. It is never empty.
type line struct{ first, last *waiter }

type lane = turns.Lane[string, line]

// length returns how many wait.
func (q *queue) length() int { return len(q.deadlines) }

// push appends w to its caller's.
func (q *queue) push(w *waiter) {
	w.dry = q.dry
	w.lane = q.callers.Lane(w.claim.Caller)
	line := &w.lane.Queue
	if w.before = line.last; w.before == nil {
		line.first = w
	} else {
		w.before.after = w
	}
	line.last = w
	heap.Push(&q.deadlines, w)
}

// pop takes the first claim of the caller whose turn it is; nil: none waits.
func (q *queue) pop() *waiter {
	lane := q.callers.First()
	if lane == nil {
		return nil
	}
	w := lane.Queue.first
	w.waited = q.dry > w.dry
	q.callers.Took(lane)
	q.remove(w)
	return w
}

// expired takes one that has waited for as long as it may; nil: none has.
func (q *queue) expired(now time.Time) *waiter {
	if end := q.nextDeadline(); end.IsZero() || now.Before(end) {
		return nil
	}
	w := q.deadlines[0]
	q.remove(w)
	return w
}

// nextDeadline returns when the next one expires; zero: none waits.
func (q *queue) nextDeadline() time.Time {
	if len(q.deadlines) == 0 {
		return time.Time{}
	}
	return q.deadlines[0].deadline
}

// remove takes w out, unless it has gone already.
func (q *queue) remove(w *waiter) {
	if w.lane == nil {
		return
	}
	line := &w.lane.Queue
	if w.before == nil {
		line.first = w.after
	} else {
		w.before.after = w.after
	}
	if w.after == nil {
		line.last = w.before
	} else {
		w.after.before = w.before
	}
	if line.first == nil {
		q.callers.Remove(w.lane)
	}
	heap.Remove(&q.deadlines, w.place)
	w.lane, w.before, w.after = nil, nil, nil
}

// deadlines is a heap.Interface of claims: the first one to expire comes first.
type deadlines []*waiter

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].deadline.Before(d[j].deadline) }
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].place, d[j].place = i, j
}

// Push implements heap.Interface.
func (d *deadlines) Push(w any) {
	w.(*waiter).place = len(*d)
	*d = append(*d, w.(*waiter))
}

// Pop implements heap.Interface.
func (d *deadlines) Pop() any {
	last := len(*d) - 1
	w := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	return w
}
