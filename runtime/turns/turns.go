// Package turns decides which waiting item is next. [Lanes] lets keys take turns: between two turns
// of a key every other waiting key has one. [Fair] does the same for weighted keys: tenants whose
// claims wait in a pool. A [Queue] orders by priority, then by turns of tenants and of their
// environments. A [Gate] lets starts of runners wait in one.
package turns

import "iter"

// Lanes holds waiting items by key, in the order of turns. The zero value is empty. Every method
// except All takes constant time. It isn't safe for concurrent use.
type Lanes[K comparable, Q any] struct {
	byKey map[K]*Lane[K, Q]
	first *Lane[K, Q] // of a ring whose last lane precedes it; nil means none
	spare *Lane[K, Q] // reused, so that a lane that arrives and leaves allocates nothing
}

// A Lane holds the items of one key.
type Lane[K comparable, Q any] struct {
	Key   K
	Queue Q

	previous, next *Lane[K, Q] // of the ring
}

// Len returns the number of lanes.
func (l *Lanes[K, Q]) Len() int { return len(l.byKey) }

// First returns the lane whose turn it is; nil means none.
func (l *Lanes[K, Q]) First() *Lane[K, Q] { return l.first }

// Find returns the lane of a key; nil means none.
func (l *Lanes[K, Q]) Find(key K) *Lane[K, Q] { return l.byKey[key] }

// Lane returns the lane of a key, or a new empty one, whose turn comes last.
func (l *Lanes[K, Q]) Lane(key K) *Lane[K, Q] {
	if lane := l.byKey[key]; lane != nil {
		return lane
	}
	lane := l.spare
	if l.spare = nil; lane == nil {
		lane = new(Lane[K, Q])
	}
	lane.Key = key
	if l.byKey == nil {
		l.byKey = map[K]*Lane[K, Q]{}
	}
	l.byKey[key] = lane
	l.append(lane)
	return lane
}

// EndTurn ends a lane's turn: its next turn comes after those of all others.
func (l *Lanes[K, Q]) EndTurn(lane *Lane[K, Q]) {
	if l.first == lane { // rotating the ring is enough
		l.first = lane.next
		return
	}
	l.unlink(lane)
	l.append(lane)
}

// Remove removes an existing lane. The caller must not use it afterwards.
func (l *Lanes[K, Q]) Remove(lane *Lane[K, Q]) {
	delete(l.byKey, lane.Key)
	l.unlink(lane)
	*lane = Lane[K, Q]{}
	l.spare = lane
}

// All yields the lanes in the order of their turns. Nothing may change meanwhile.
func (l *Lanes[K, Q]) All() iter.Seq[*Lane[K, Q]] {
	return func(yield func(*Lane[K, Q]) bool) {
		for lane := l.first; lane != nil; {
			if !yield(lane) {
				return
			}
			if lane = lane.next; lane == l.first {
				return
			}
		}
	}
}

// append adds a lane as the last one of the ring.
func (l *Lanes[K, Q]) append(lane *Lane[K, Q]) {
	if l.first == nil {
		l.first, lane.previous, lane.next = lane, lane, lane
		return
	}
	last := l.first.previous
	lane.previous, lane.next = last, l.first
	last.next, l.first.previous = lane, lane
}

// unlink takes a lane out of the ring.
func (l *Lanes[K, Q]) unlink(lane *Lane[K, Q]) {
	if lane.next == lane {
		l.first = nil
		return
	}
	lane.previous.next, lane.next.previous = lane.next, lane.previous
	if l.first == lane {
		l.first = lane.next
	}
}
