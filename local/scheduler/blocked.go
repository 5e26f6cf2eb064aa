package scheduler

import (
	"sync"

	"github.com/rockpool/rockpool/runtime"
)

// blocked keeps the evaluations that wait for room, one of a job at most, and
// wakes as many as there is room for, no more: what was promised to one that
// is awake is not promised again. What goes first is what a queue says; an
// evaluation that doesn't fit is passed, but what it lacks is kept from those
// of a lower priority. Its methods are safe for concurrent use.
type blocked struct {
	node  func() Node       // as it is now
	wake  func(*Evaluation) // called without the lock
	stats *stats

	mu      sync.Mutex // guards all below
	asleep  *queue
	awake   map[runtime.RunnerID]*Evaluation // woken, and neither blocked again nor done
	waiting map[runtime.RunnerID]*Evaluation // all
}

func newBlocked(node func() Node, wake func(*Evaluation), stats *stats) *blocked {
	return &blocked{
		node:    node,
		wake:    wake,
		stats:   stats,
		asleep:  newQueue(),
		awake:   map[runtime.RunnerID]*Evaluation{},
		waiting: map[runtime.RunnerID]*Evaluation{},
	}
}

// block puts e to sleep, and returns another one of its job, which e replaces.
// There may be room for it already: it looks.
func (b *blocked) block(e *Evaluation) *Evaluation {
	b.mu.Lock()
	old := b.takeOut(e.Job)
	b.asleep.Push(e.Tenant, e.Environment, e.Priority, e)
	b.waiting[e.Job] = e
	b.mu.Unlock()
	b.look()
	if old != nil && old.ID != e.ID {
		return old
	}
	return nil
}

// done forgets what waits for a job, and returns it; nil if nothing did. Others
// may go on then.
func (b *blocked) done(job runtime.RunnerID) *Evaluation {
	b.mu.Lock()
	old := b.takeOut(job)
	b.mu.Unlock()
	if old != nil {
		b.look()
	}
	return old
}

func (b *blocked) takeOut(job runtime.RunnerID) *Evaluation {
	old := b.waiting[job]
	if old == nil {
		return nil
	}
	if b.awake[job] == nil {
		b.asleep.Remove(old.Tenant, old.Environment, old.Priority, old)
	}
	delete(b.awake, job)
	delete(b.waiting, job)
	return old
}

// look wakes what there is room for now.
func (b *blocked) look() {
	b.mu.Lock()
	woken := b.chooseAwake()
	b.mu.Unlock()
	for _, e := range woken {
		b.stats.unblocked.Add(1)
		b.wake(e)
	}
}

func (b *blocked) chooseAwake() []*Evaluation {
	if b.asleep.Len() == 0 {
		return nil
	}
	node := b.node()
	free := minus(node.Capacity, node.Used)
	for _, e := range b.awake {
		free = minus(free, e.wanted)
	}
	var woken []*Evaluation
	for _, level := range b.asleep.Levels() {
		for {
			e, ok := b.asleep.Take(level, func(e *Evaluation) bool { return fits(e.wanted, free) })
			if !ok {
				break
			}
			free = minus(free, e.wanted)
			b.awake[e.Job] = e
			woken = append(woken, e)
		}
		for e := range level.All() {
			if fits(e.wanted, node.Capacity) {
				free = minus(free, e.wanted)
			}
		}
	}
	return woken
}

// kept returns the room that a job of this priority has to leave: to those
// that go before it and could ever be placed, and to those that are awake.
func (b *blocked) kept(job runtime.RunnerID, priority runtime.Priority, capacity runtime.Resources) runtime.Resources {
	b.mu.Lock()
	defer b.mu.Unlock()
	var sum runtime.Resources
	for id, e := range b.awake {
		if id != job && e.Priority >= priority {
			sum = plus(sum, e.wanted)
		}
	}
	for _, level := range b.asleep.Levels() {
		if level.Priority <= priority {
			break
		}
		for e := range level.All() {
			if e.Job != job && fits(e.wanted, capacity) {
				sum = plus(sum, e.wanted)
			}
		}
	}
	return sum
}

// reason says what a job waits for; "" if it isn't blocked.
func (b *blocked) reason(job runtime.RunnerID) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.waiting[job]; e != nil {
		return e.Reason
	}
	return ""
}

// count counts what waits, in all and by what it lacks.
func (b *blocked) count() (all int, lacking map[Dimension]int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	lacking = map[Dimension]int{}
	for _, e := range b.waiting {
		for _, s := range e.Shortages {
			lacking[s.Dimension]++
		}
	}
	return len(b.waiting), lacking
}
