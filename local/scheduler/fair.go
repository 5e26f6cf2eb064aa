package scheduler

import (
	"cmp"
	"slices"

	"github.com/rockpool/rockpool/runtime"
)

// fair orders evaluations: by priority, then the environments take turns, then
// by age. So whatever else is queued, an environment's first comes no later
// than after one of every other environment that has its priority. The zero
// value is empty.
type fair struct {
	levels []*level // those of the highest priority first
	length int
}

// level holds what has one priority.
type level struct {
	priority runtime.Priority
	lanes    []*lane // none is empty; whose turn it is comes first
}

// lane holds an environment's, the oldest first.
type lane struct {
	environment runtime.EnvironmentID
	queue       []*Evaluation
}

func (f *fair) push(e *Evaluation) {
	at, found := slices.BinarySearchFunc(f.levels, e.Priority, func(l *level, p runtime.Priority) int { return cmp.Compare(p, l.priority) })
	if !found {
		f.levels = slices.Insert(f.levels, at, &level{priority: e.Priority})
	}
	f.levels[at].push(e)
	f.length++
}

func (l *level) push(e *Evaluation) {
	at := slices.IndexFunc(l.lanes, func(l *lane) bool { return l.environment == e.Environment })
	if at < 0 {
		at = len(l.lanes)
		l.lanes = append(l.lanes, &lane{environment: e.Environment})
	}
	// One that comes back is as old as it was, and as its job is.
	queue := &l.lanes[at].queue
	place, _ := slices.BinarySearchFunc(*queue, e, func(a, b *Evaluation) int {
		return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.CreateIndex, b.CreateIndex), cmp.Compare(a.ID, b.ID))
	})
	*queue = slices.Insert(*queue, place, e)
}

// top returns the highest priority, and false if there is nothing.
func (f *fair) top() (runtime.Priority, bool) {
	if len(f.levels) == 0 {
		return 0, false
	}
	return f.levels[0].priority, true
}

// pop takes the first; nil if there is none.
func (f *fair) pop() *Evaluation {
	if len(f.levels) == 0 {
		return nil
	}
	return f.take(f.levels[0], func(*Evaluation) bool { return true })
}

// take takes the first of l that fits; nil if none does.
func (f *fair) take(l *level, fits func(*Evaluation) bool) *Evaluation {
	for i, lane := range l.lanes {
		at := slices.IndexFunc(lane.queue, fits)
		if at < 0 {
			continue
		}
		e := lane.queue[at]
		f.drop(l, i, at)
		if len(lane.queue) > 0 { // the next one's turn
			l.lanes = append(slices.Delete(l.lanes, i, i+1), lane)
		}
		return e
	}
	return nil
}

// remove takes e out, and reports whether it was there.
func (f *fair) remove(e *Evaluation) bool {
	for _, l := range f.levels {
		if l.priority != e.Priority {
			continue
		}
		for i, lane := range l.lanes {
			if at := slices.IndexFunc(lane.queue, func(o *Evaluation) bool { return o.ID == e.ID }); at >= 0 {
				f.drop(l, i, at)
				return true
			}
		}
	}
	return false
}

// drop takes out one of lane i, and what is empty then.
func (f *fair) drop(l *level, i, at int) {
	lane := l.lanes[i]
	if at == 0 {
		lane.queue[0] = nil
		lane.queue = lane.queue[1:]
	} else {
		lane.queue = slices.Delete(lane.queue, at, at+1)
	}
	f.length--
	if len(lane.queue) > 0 {
		return
	}
	if l.lanes = slices.Delete(l.lanes, i, i+1); len(l.lanes) == 0 {
		f.levels = slices.DeleteFunc(f.levels, func(o *level) bool { return o == l })
	}
}

// all yields every evaluation of l.
func (l *level) all(yield func(*Evaluation) bool) {
	for _, lane := range l.lanes {
		for _, e := range lane.queue {
			if !yield(e) {
				return
			}
		}
	}
}
