package pool

import (
	"container/heap"
	"iter"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/fairqueue"
)

// A queue holds the waiting claims. Tenants take turns by weight, callers take turns within those of
// their tenant, and the claims of one caller stay in order of arrival. So between two claims of a
// tenant with weight 1, each other waiting tenant is served at least once, no matter how many claims
// and callers it has. The same holds for the callers of one tenant. Adding or removing a claim takes
// logarithmic time and allocates nothing. The zero value is an empty queue.
type queue struct {
	tenants   fairqueue.Weighted[runtime.TenantID, callers]
	deadlines deadlines
	dry       int // how often no idle runner was left for a claim
}

type callers = fairqueue.RoundRobin[string, line]

// A line is the list of one caller's waiting claims. It is never empty.
type line struct{ first, last *waiter }

// The queue's instances of the types of fairqueue.
type (
	tenantQueue = fairqueue.Tenant[runtime.TenantID, callers]
	callerQueue = fairqueue.Key[string, line]
)

func (q *queue) length() int { return len(q.deadlines) }

func (q *queue) push(w *waiter) {
	w.dry = q.dry
	w.tenant = q.tenants.Tenant(w.claim.Claim.Tenant, w.claim.Weight)
	w.caller = w.tenant.Queue.Key(w.claim.Caller)
	line := &w.caller.Queue
	if w.before = line.last; w.before == nil {
		line.first = w
	} else {
		w.before.after = w
	}
	line.last = w
	heap.Push(&q.deadlines, w)
}

func (q *queue) next() *waiter {
	tenant := q.tenants.First()
	if tenant == nil {
		return nil
	}
	return tenant.Queue.First().Queue.first
}

// serve removes w, the oldest claim of its caller, even if it isn't next. It counts as a turn of its
// tenant and of its caller.
func (q *queue) serve(w *waiter) {
	// If dry has grown, the idle runners ran out while w was in the queue.
	w.queued = q.dry > w.dry
	w.tenant.Queue.EndTurn(w.caller)
	q.tenants.EndTurn(w.tenant)
	q.remove(w)
}

// alone reports whether w is its tenant's only waiting claim.
func (w *waiter) alone() bool {
	return w.caller != nil && w.tenant.Queue.Len() == 1 && w.caller.Queue.first == w.caller.Queue.last
}

// expired removes and returns a claim whose deadline has passed; nil means none.
func (q *queue) expired(now time.Time) *waiter {
	if end := q.nextDeadline(); end.IsZero() || now.Before(end) {
		return nil
	}
	w := q.deadlines[0]
	q.remove(w)
	return w
}

func (q *queue) nextDeadline() time.Time {
	if len(q.deadlines) == 0 {
		return time.Time{}
	}
	return q.deadlines[0].deadline
}

// remove removes w from the queue, if it is there.
func (q *queue) remove(w *waiter) {
	if w.caller == nil {
		return
	}
	line := &w.caller.Queue
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
		if w.tenant.Queue.Remove(w.caller); w.tenant.Queue.Len() == 0 {
			q.tenants.Remove(w.tenant)
		}
	}
	heap.Remove(&q.deadlines, w.deadlineIndex)
	w.tenant, w.caller, w.before, w.after = nil, nil, nil, nil
	w.endWait()
}

// order yields all claims in the order in which they would be served if none arrived or left. It takes
// as long as serving them.
func (q *queue) order() iter.Seq[*waiter] {
	return func(yield func(*waiter) bool) {
		ahead := make(map[*tenantQueue][]*waiter, q.tenants.Len()) // of each tenant, in the order of its own turns
		for tenant := range q.tenants.Order(func(f *tenantQueue) int {
			ahead[f] = inTurns(&f.Queue)
			return len(ahead[f])
		}) {
			next := ahead[tenant]
			ahead[tenant] = next[1:]
			if !yield(next[0]) {
				return
			}
		}
	}
}

// inTurns returns a tenant's claims in the order in which they would be served if it were alone.
func inTurns(c *callers) (all []*waiter) {
	var round []*waiter // the next claim of each caller with one
	for caller := range c.All() {
		round = append(round, caller.Queue.first)
	}
	// Each round serves one claim of each caller that still has one.
	for len(round) > 0 {
		all = append(all, round...)
		next := round[:0]
		for _, w := range round {
			if w.after != nil {
				next = append(next, w.after)
			}
		}
		round = next
	}
	return all
}

type deadlines []*waiter

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].deadline.Before(d[j].deadline) }
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].deadlineIndex, d[j].deadlineIndex = i, j
}

// Push implements heap.Interface.
func (d *deadlines) Push(w any) {
	w.(*waiter).deadlineIndex = len(*d)
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
