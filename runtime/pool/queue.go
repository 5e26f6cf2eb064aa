package pool

import (
	"container/heap"
	"context"
	"iter"
	"sync/atomic"
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

// A QueuePosition is a waiting claim's position in its pool's queue.
type QueuePosition struct {
	Position      int           // 1: the next one; 0 means that it doesn't wait, or its position is unknown yet
	EstimatedWait time.Duration // at the pace of recent waiting claims; 0 means there were none
}

// A Queued tracks one claim in the queue. Its methods are safe for concurrent use.
type Queued struct {
	began    chan struct{} // closed by begin
	queued   atomic.Bool
	position atomic.Int64 // as last computed
}

// NewQueued returns a tracker for one claim; set it as Claim.Queued.
func NewQueued() *Queued { return &Queued{began: make(chan struct{})} }

// Began returns a channel that is closed when the claim begins to wait. It is never closed for a claim
// that is answered immediately.
func (w *Queued) Began() <-chan struct{} { return w.began }

// begin records that the claim waits. The loop calls it at most once.
func (w *Queued) begin() {
	w.queued.Store(true)
	close(w.began)
}

// end records that the claim no longer waits, even if it never did.
func (w *Queued) end() {
	w.queued.Store(false)
	w.position.Store(0)
}

// positions holds what the loop last computed about all waiting claims.
type positions struct {
	due  atomic.Pointer[time.Time] // when to compute them again; nil means now
	turn atomic.Int64              // nanoseconds of one turn; 0 means unknown
}

func (p *positions) valid(now time.Time) bool {
	due := p.due.Load()
	return due != nil && now.Before(*due)
}

// positionsFor is how long computed positions stay valid, per waiting claim: 0.2 s for 10,000. Computing one
// takes about a hundredth of that (BenchmarkPositions).
const positionsFor = 20 * time.Microsecond

// QueuePosition returns a claim's position. All positions are computed together, on demand, and are reused for
// a moment, so the result may be slightly old. The position of a claim that arrived since is unknown.
func (p *Pool) QueuePosition(ctx context.Context, w *Queued) QueuePosition {
	if w.queued.Load() && !p.positions.valid(time.Now()) {
		_, _ = call(ctx, p, func(o *loop, reply func(struct{}, error)) { // on an error, the last positions stay
			o.computePositions(time.Now())
			o.planUnchanged = true
			reply(struct{}{}, nil)
		})
	}
	position := w.position.Load()
	return QueuePosition{Position: int(position), EstimatedWait: time.Duration(position * p.positions.turn.Load())}
}

func (o *loop) computePositions(now time.Time) {
	if o.pool.positions.valid(now) {
		return
	}
	position := int64(0)
	for w := range o.waiting.order() {
		position++
		if w.claim.Queued != nil {
			w.claim.Queued.position.Store(position)
		}
	}
	o.pool.positions.turn.Store(int64(o.pace.turn(now)))
	o.pool.positions.due.Store(new(now.Add(time.Duration(position) * positionsFor)))
}

// A pace is the mean time between turns while claims wait, in which the latest pacedTurns count most.
type pace struct {
	mean  time.Duration // between turns
	turns int
	since time.Time // last turn, or beginning of the wait; the zero time means no claim waits
}

// pacedTurns is how many turns the mean mostly consists of.
const pacedTurns = 16

func (p *pace) wait(now time.Time, waiting int) {
	switch {
	case waiting == 0:
		p.since = time.Time{}
	case p.since.IsZero():
		p.since = now
	}
}

func (p *pace) served(now time.Time) {
	p.turns = min(p.turns+1, pacedTurns)
	p.mean += (now.Sub(p.since) - p.mean) / time.Duration(p.turns)
	p.since = now
}

// turn returns the time of one turn; 0 means unknown. A turn that already takes longer than the mean counts
// before it ends.
func (p *pace) turn(now time.Time) time.Duration {
	mean := p.mean
	if open := now.Sub(p.since); p.turns > 0 && !p.since.IsZero() && open > mean {
		mean += (open - mean) / time.Duration(min(p.turns+1, pacedTurns))
	}
	return mean
}
