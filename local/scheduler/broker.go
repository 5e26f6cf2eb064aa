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
	nackAfter     = time.Minute // a worker that is silent for so long is believed to be stuck
	maxDeliveries = 3
	redeliver     = time.Second // after the first nack; four times as long after each further one
)

var (
	errDisabled = errors.New("the broker is disabled")
	errNotHeld  = errors.New("the evaluation isn't held with this token any more")
)

// broker hands evaluations out, each to one worker at a time, and again until
// it is acknowledged. Of a job at most one is outstanding and one waits: the
// newest, since it sees all that an older one would. Its methods are safe for
// concurrent use.
type broker struct {
	stats *stats
	// superseded is called, without the lock, for an evaluation that will not be
	// delivered because a newer one of its job will.
	superseded func(old, by *Evaluation)
	failing    chan struct{} // a hint, capacity 1: failures has something to take

	mu      sync.Mutex // guards all below
	enabled bool
	opened  chan struct{} // closed while it is enabled
	slots   map[runtime.RunnerID]*slot
	ready   map[runtime.EvaluationType]*queue
	waiters []*waiter
	tokens  token
	failed  map[runtime.RunnerID]*Evaluation // delivered too often, until something newer of the job is ready
	untold  []*Evaluation                    // of those that failed: not taken by failures yet
}

// A token proves that its holder was handed an evaluation, and still holds it.
type token uint64

// A delivery is an evaluation that was handed out.
type delivery struct {
	*Evaluation
	token token
}

// slot is what the broker has of one job.
type slot struct {
	held  *item // outstanding
	next  *item // ready, delayed, or pending until what is held comes back
	token token // of held
}

// item is an evaluation on its way.
type item struct {
	*Evaluation
	deliveries int
	timer      *time.Timer // of its nack, while held; of its delay, while delayed
	ready      bool        // queued in broker.ready
}

// waiter is a blocked dequeue.
type waiter struct {
	types    []runtime.EvaluationType
	answered chan delivery // capacity 1; closed when the broker is disabled
}

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

// enqueue takes e, which the state has, to be delivered: not before
// e.WaitUntil, and after what is outstanding of its job: e itself, perhaps, which
// is then delivered once more. One that is queued already is success.
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
	b.tell(old, by)
}

// tell says that old will not be delivered, since by will. The caller doesn't
// hold mu.
func (b *broker) tell(old, by *Evaluation) {
	if old != nil && old.ID != by.ID {
		b.superseded(old, by)
	}
}

// offer makes i the slot's next unless a newer one is there already, or one
// that needn't wait as i must. It returns the one of the two that isn't needed
// then.
func (b *broker) offer(s *slot, i *item) *Evaluation {
	old := s.next
	switch {
	case old != nil && (i.CreateIndex < old.CreateIndex || !i.WaitUntil.IsZero() && old.WaitUntil.IsZero()):
		b.schedule(s) // it may have been pending for i
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

// schedule lets a slot's next go on its way, unless it is pending.
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

func (b *broker) makeReady(i *item) {
	delete(b.failed, i.Job) // its follow-up is here, or something newer
	i.ready = true
	b.ready[i.Type].Push(i.Tenant, i.Environment, i.Priority, i.Evaluation)
}

// delay makes i ready after a while.
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

// dequeue waits for an evaluation of one of the types and hands it out: the
// highest priority first, then by turns. It returns nil after a while without
// one, and when stop is closed; errDisabled; and ctx's cause.
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
	return answer(receive(w.answered)) // it came just now: it must not be lost
}

func receive(from <-chan delivery) (delivery, bool) { d, ok := <-from; return d, ok }

func answer(d delivery, ok bool) (*delivery, error) {
	if !ok {
		return nil, errDisabled
	}
	return &d, nil
}

// dispatch hands what is ready to who waits for it. The caller holds mu.
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
	clear(b.waiters[len(kept):])
	b.waiters = kept
}

// best takes what comes first of some types.
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

// hold makes e, a slot's next, outstanding.
func (b *broker) hold(e *Evaluation) delivery {
	s := b.slots[e.Job]
	i := s.next
	s.next, s.held = nil, i
	b.tokens++
	s.token = b.tokens
	d := delivery{Evaluation: e, token: s.token}
	i.ready = false
	i.deliveries++
	i.timer = time.AfterFunc(nackAfter, func() {
		if b.nack(d) == nil {
			b.stats.nackTimeouts.Add(1)
		}
	})
	b.stats.dequeued.Add(1)
	return d
}

// enable lets evaluations be handed out. disable takes back those that were,
// and keeps all until then: nothing is lost.
func (b *broker) enable() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.enabled {
		b.enabled = true
		close(b.opened)
		b.dispatch()
	}
}

func (b *broker) disable() {
	type pair struct{ old, by *Evaluation }
	var superseded []pair
	b.mu.Lock()
	if b.enabled {
		b.enabled = false
		b.opened = make(chan struct{})
		for _, s := range b.slots {
			if i := b.release(s); i != nil {
				i.deliveries-- // it is nobody's fault
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
		b.tell(p.old, p.by)
	}
}

// whenEnabled is closed while the broker is enabled.
func (b *broker) whenEnabled() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opened
}
