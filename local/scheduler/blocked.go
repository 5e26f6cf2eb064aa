package scheduler

import (
	"sync"

	"github.com/rockpool/rockpool/runtime"
)

// blocked keeps the evaluations that wait for room, at most one per job. It wakes only as many as
// fit concurrently: room promised to an evaluation that is awake isn't promised again. The queue
// decides the order. An evaluation that doesn't fit is skipped, but the room that it needs is kept
// from evaluations of lower priority. Its methods are safe for concurrent use.
type blocked struct {
	node  func() Node       // returns the node as it is now
	wake  func(*Evaluation) // enqueues an evaluation; called without the lock
	stats *stats

	mu      sync.Mutex // guards the fields below
	asleep  *queue
	awake   map[runtime.RunnerID]*Evaluation // woken, and neither blocked again nor done
	waiting map[runtime.RunnerID]*Evaluation // asleep and awake ones
}

// newBlocked returns one that keeps no evaluation yet.
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

// block puts e to sleep. It returns the evaluation of the same job that e replaces; nil: there is
// none. e is woken immediately if there is room already.
func (b *blocked) block(e *Evaluation) *Evaluation {
	b.mu.Lock()
	old := b.takeOut(e.Job)
	b.asleep.Push(e.Tenant, e.Environment, e.Priority, e)
	b.waiting[e.Job] = e
	b.mu.Unlock()
	b.wakeFitting()
	if old != nil && old.ID != e.ID {
		return old
	}
	return nil
}

// done forgets the evaluation that waits for a job, and returns it; nil: none does. Others may be
// woken then.
func (b *blocked) done(job runtime.RunnerID) *Evaluation {
	b.mu.Lock()
	old := b.takeOut(job)
	b.mu.Unlock()
	if old != nil {
		b.wakeFitting()
	}
	return old
}

// takeOut is done without waking others. The caller holds mu.
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

// wakeFitting wakes the evaluations that there is room for now.
func (b *blocked) wakeFitting() {
	b.mu.Lock()
	woken := b.chooseAwake()
	b.mu.Unlock()
	for _, e := range woken {
		b.stats.unblocked.Add(1)
		b.wake(e)
	}
}

// chooseAwake moves the evaluations that fit from asleep to awake, and returns them. The caller
// holds mu.
func (b *blocked) chooseAwake() []*Evaluation {
	if b.asleep.Len() == 0 {
		return nil
	}
	node := b.node()
	free := node.Capacity.Minus(node.Used)
	// Awake ones may not have been placed yet, so Used doesn't contain their room.
	for _, e := range b.awake {
		free = free.Minus(e.wanted)
	}
	var woken []*Evaluation
	for _, level := range b.asleep.Levels() {
		for {
			e, ok := b.asleep.Take(level, func(e *Evaluation) bool { return e.wanted.Fits(free) })
			if !ok {
				break
			}
			free = free.Minus(e.wanted)
			b.awake[e.Job] = e
			woken = append(woken, e)
		}
		// The ones left keep their room from lower levels, unless this machine can never place
		// them.
		for e := range level.All() {
			if e.wanted.Fits(node.Capacity) {
				free = free.Minus(e.wanted)
			}
		}
	}
	return woken
}

// kept returns the room that a job of this priority must leave to others. These are evaluations of
// higher priority that this machine could ever place, and those that are awake.
func (b *blocked) kept(job runtime.RunnerID, priority runtime.Priority, capacity runtime.Resources) runtime.Resources {
	b.mu.Lock()
	defer b.mu.Unlock()
	var sum runtime.Resources
	for id, e := range b.awake {
		if id != job && e.Priority >= priority {
			sum = sum.Plus(e.wanted)
		}
	}
	for _, level := range b.asleep.Levels() {
		if level.Priority <= priority {
			break
		}
		for e := range level.All() {
			if e.Job != job && e.wanted.Fits(capacity) {
				sum = sum.Plus(e.wanted)
			}
		}
	}
	return sum
}

// of returns a job's evaluation that waits; nil: it isn't blocked.
func (b *blocked) of(job runtime.RunnerID) *Evaluation {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting[job]
}

// count returns how many evaluations wait, in all and by what they lack.
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
