package scheduler

import (
	"cmp"
	"slices"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/turns"
)

// fair orders evaluations: by priority, then the environments take turns, then
// by age. So whatever else is queued, an environment's first comes no later
// than after one of every other environment that has its priority. The zero
// value is empty.
type fair struct {
	levels []*level // those of the highest priority first
	length int
}

// level holds what has one priority: for each environment its evaluations, the
// oldest first. No lane is empty.
type level struct {
	priority runtime.Priority
	lanes    turns.Lanes[runtime.EnvironmentID, []*Evaluation]
}

type lane = turns.Lane[runtime.EnvironmentID, []*Evaluation]

func (f *fair) push(e *Evaluation) {
	at, found := slices.BinarySearchFunc(f.levels, e.Priority, func(l *level, p runtime.Priority) int { return cmp.Compare(p, l.priority) })
	if !found {
		f.levels = slices.Insert(f.levels, at, &level{priority: e.Priority})
	}
	// One that comes back is as old as it was, and as its job is.
	lane := f.levels[at].lanes.Lane(e.Environment)
	place, _ := slices.BinarySearchFunc(lane.Queue, e, func(a, b *Evaluation) int {
		return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.CreateIndex, b.CreateIndex), cmp.Compare(a.ID, b.ID))
	})
	lane.Queue = slices.Insert(lane.Queue, place, e)
	f.length++
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
	for lane := range l.lanes.All() {
		at := slices.IndexFunc(lane.Queue, fits)
		if at < 0 {
			continue
		}
		e := lane.Queue[at]
		l.lanes.Took(lane)
		f.drop(l, lane, at)
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
		lane := l.lanes.Find(e.Environment)
		if lane == nil {
			return false
		}
		at := slices.IndexFunc(lane.Queue, func(o *Evaluation) bool { return o.ID == e.ID })
		if at >= 0 {
			f.drop(l, lane, at)
		}
		return at >= 0
	}
	return false
}

// drop takes out one of a lane, and what is empty then.
func (f *fair) drop(l *level, lane *lane, at int) {
	if at == 0 {
		lane.Queue[0] = nil
		lane.Queue = lane.Queue[1:]
	} else {
		lane.Queue = slices.Delete(lane.Queue, at, at+1)
	}
	f.length--
	if len(lane.Queue) > 0 {
		return
	}
	if l.lanes.Remove(lane); l.lanes.Len() == 0 {
		f.levels = slices.DeleteFunc(f.levels, func(o *level) bool { return o == l })
	}
}

// all yields every evaluation of l.
func (l *level) all(yield func(*Evaluation) bool) {
	for lane := range l.lanes.All() {
		for _, e := range lane.Queue {
			if !yield(e) {
				return
			}
		}
	}
}
