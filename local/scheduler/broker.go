package scheduler

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// Bounds of a delivery.
const (
	nackAfter     = time.Minute // a worker that neither acked nor nacked for so long counts as stuck
	maxDeliveries = 3
	redeliver     = time.Second // delay after the first nack; times 4 after each further one
)

// Errors of the broker's methods.
var (
	errDisabled = errors.New("the broker is disabled")
	errNotHeld  = errors.New("the evaluation is no longer held with this token")
)

// broker delivers evaluations, each to one worker at a time, again and again until it is
// acknowledged. Of each job at most one evaluation is outstanding and one waits: the newest,
// because it covers all that older ones would do. Its methods are safe for concurrent use.
type broker struct {
	stats *stats
	// superseded is called for an evaluation that won't be delivered because a newer one of its job
	// will. It is called without the lock.
	superseded func(old, by *Evaluation)
	failing    chan struct{} // a hint, capacity 1: failures returns something

	mu         sync.Mutex // guards the fields below
	enabled    bool
	opened     chan struct{} // closed while the broker is enabled; replaced by disable
	slots      map[runtime.RunnerID]*slot
	ready      map[runtime.EvaluationType]*queue
	waiters    []*waiter
	tokens     token
	failed     map[runtime.RunnerID]*Evaluation // delivered maxDeliveries times, until a newer one is ready
	unreported []*Evaluation                    // failed ones that failures hasn't returned yet
}

// A token proves that its holder was delivered an evaluation and still holds it.
type token uint64

// A delivery is an evaluation that was delivered to a worker.
type delivery struct {
	*Evaluation
	token token
}

// slot holds a job's evaluations in the broker.
type slot struct {
	held  *item // outstanding
	next  *item // ready, delayed, or pending until held is acked or nacked
	token token // of held
}

// item is an evaluation in the broker.
type item struct {
	*Evaluation
	deliveries int
	timer      *time.Timer // while held: nacks it; while delayed: makes it ready
	ready      bool        // queued in broker.ready
}

// waiter is a blocked dequeue.
type waiter struct {
	types    []runtime.EvaluationType
	answered chan delivery // capacity 1; closed when the broker is disabled
}

// newBroker returns a broker that is disabled.
func newBroker(stats *stats, superseded func(old, by *Evaluation)) *broker {
	b := &broker{
		stats:      stats,
		superseded: superseded,
		failing:    make(chan struct{}, 1),
		opened:     make(chan struct{}),
		slots:      map[runtime.RunnerID]*slot{},
		ready:      map[runtime.EvaluationType]*queue{},
		failed:     map[runtime.RunnerID]*Evaluation{},
	}
	for _, t := range Types() {
		b.ready[t] = newQueue()
	}
	return b
}

// enqueue queues e, which must be in the state. It is delivered no earlier than e.WaitUntil, and
// after the outstanding evaluation of its job; if that is e itself, e is delivered once more.
// Enqueueing a queued evaluation again is success.
func (b *broker) enqueue(e *Evaluation) {
	b.mu.Lock()
	s := b.slots[e.Job]
	if s == nil {
		s = &slot{}
		b.slots[e.Job] = s
	}
	if s.next != nil && s.next.ID == e.ID {
		b.mu.Unlock()
		return
	}
	b.stats.enqueued.Add(1)
	old := b.offer(s, &item{Evaluation: e})
	by := s.next.Evaluation
	b.dispatch()
	b.mu.Unlock()
	b.notifySuperseded(old, by)
}

// notifySuperseded reports that by will be delivered instead of old; old may be nil. The caller
// doesn't hold mu.
func (b *broker) notifySuperseded(old, by *Evaluation) {
	if old != nil && old.ID != by.ID {
		b.superseded(old, by)
	}
}

// offer makes i the slot's next, unless the present next is newer, or needn't wait while i must. It
// returns the one of the two that is superseded; nil: there was none. The caller holds mu.
func (b *broker) offer(s *slot, i *item) *Evaluation {
	old := s.next
	switch {
	case old != nil && (i.CreateIndex < old.CreateIndex || !i.WaitUntil.IsZero() && old.WaitUntil.IsZero()):
		b.schedule(s) // the present next may have been pending until i came back
		return i.Evaluation
	case old != nil:
		b.unschedule(old)
	}
	s.next = i
	b.schedule(s)
	if old != nil {
		return old.Evaluation
	}
	return nil
}

// schedule makes a slot's next ready, now or at its time, unless it is pending. The caller holds
// mu.
func (b *broker) schedule(s *slot) {
	i := s.next
	if i == nil || s.held != nil || i.ready || i.timer != nil {
		return
	}
	if wait := time.Until(i.WaitUntil); !i.WaitUntil.IsZero() && wait > 0 {
		b.delay(s, i, wait)
		return
	}
	b.makeReady(i)
}

// makeReady queues i for dequeue. The caller holds mu.
func (b *broker) makeReady(i *item) {
	delete(b.failed, i.Job) // this is its follow-up or something newer
	i.ready = true
	b.ready[i.Type].Push(i.Tenant, i.Environment, i.Priority, i.Evaluation)
}

// delay makes i ready after wait.
func (b *broker) delay(s *slot, i *item, wait time.Duration) {
	i.timer = time.AfterFunc(wait, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if s.next != i || i.ready {
			return // superseded just now
		}
		i.timer = nil
		b.makeReady(i)
		b.dispatch()
	})
}

// unschedule undoes schedule. The caller holds mu.
func (b *broker) unschedule(i *item) {
	if i.timer != nil {
		i.timer.Stop()
		i.timer = nil
	}
	if i.ready {
		i.ready = false
		b.ready[i.Type].Remove(i.Tenant, i.Environment, i.Priority, i.Evaluation)
	}
}

// dequeue waits for an evaluation of one of the types and delivers it: the highest priority first,
// then tenants by turns. It returns nil if none came within the time, or when stop is closed.
// Errors: errDisabled, and ctx's cause.
func (b *broker) dequeue(ctx context.Context, stop <-chan struct{}, within time.Duration, types ...runtime.EvaluationType) (*delivery, error) {
	b.mu.Lock()
	if !b.enabled {
		b.mu.Unlock()
		return nil, errDisabled
	}
	w := &waiter{types: types, answered: make(chan delivery, 1)}
	b.waiters = append(b.waiters, w)
	b.dispatch()
	b.mu.Unlock()
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	var err error
	select {
	case d, ok := <-w.answered:
		return answer(d, ok)
	case <-timeout.C:
	case <-stop:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for at, o := range b.waiters {
		if o == w {
			b.waiters = append(b.waiters[:at], b.waiters[at+1:]...)
			return nil, err
		}
	}
	return answer(receive(w.answered)) // dispatch has just delivered it: it must not be lost
}

// receive returns the next delivery; false: the channel was closed.
func receive(from <-chan delivery) (delivery, bool) { d, ok := <-from; return d, ok }

// answer returns the result of a dequeue; !ok: the broker was disabled meanwhile.
func answer(d delivery, ok bool) (*delivery, error) {
	if !ok {
		return nil, errDisabled
	}
	return &d, nil
}

// dispatch delivers ready evaluations to waiting workers. The caller holds mu.
func (b *broker) dispatch() {
	if !b.enabled {
		return
	}
	kept := b.waiters[:0]
	for _, w := range b.waiters {
		if e := b.best(w.types); e != nil {
			w.answered <- b.hold(e)
		} else {
			kept = append(kept, w)
		}
	}
	// Otherwise the array would keep answered waiters from being freed.
	clear(b.waiters[len(kept):])
	b.waiters = kept
}

// best removes and returns the first ready evaluation of the types; nil: there is none. The caller
// holds mu.
func (b *broker) best(types []runtime.EvaluationType) *Evaluation {
	var from *queue
	var highest runtime.Priority
	for _, t := range types {
		if p, ok := b.ready[t].Top(); ok && (from == nil || p > highest) {
			from, highest = b.ready[t], p
		}
	}
	if from == nil {
		return nil
	}
	e, _ := from.Pop()
	return e
}

// hold makes e, a slot's next, outstanding. The caller holds mu.
func (b *broker) hold(e *Evaluation) delivery {
	s := b.slots[e.Job]
	i := s.next
	s.next, s.held = nil, i
	b.tokens++
	s.token = b.tokens
	d := delivery{Evaluation: e, token: s.token}
	i.ready = false
	i.deliveries++
	// A stuck worker loses the evaluation, which is then delivered again.
	i.timer = time.AfterFunc(nackAfter, func() {
		if b.nack(d) == nil {
			b.stats.nackTimeouts.Add(1)
		}
	})
	b.stats.dequeued.Add(1)
	return d
}

// enable lets evaluations be delivered. disable takes back outstanding evaluations and stops
// deliveries; everything stays queued.
func (b *broker) enable() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.enabled {
		b.enabled = true
		close(b.opened)
		b.dispatch()
	}
}

// disable stops deliveries, and takes outstanding evaluations back without counting the delivery.
// Waiting dequeues return errDisabled.
func (b *broker) disable() {
	type pair struct{ old, by *Evaluation }
	var superseded []pair
	b.mu.Lock()
	if b.enabled {
		b.enabled = false
		b.opened = make(chan struct{})
		for _, s := range b.slots {
			if i := b.release(s); i != nil {
				i.deliveries-- // this delivery doesn't count as a failure
				superseded = append(superseded, pair{b.offer(s, i), s.next.Evaluation})
			}
		}
		for _, w := range b.waiters {
			close(w.answered)
		}
		b.waiters = nil
	}
	b.mu.Unlock()
	for _, p := range superseded {
		b.notifySuperseded(p.old, p.by)
	}
}

// whenEnabled returns a channel that is closed while the broker is enabled.
func (b *broker) whenEnabled() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opened
}
