// Package fairqueue decides which waiting item is next. [RoundRobin] lets keys take turns: between two turns
// of a key every other waiting key has one. [Weighted] does the same for tenants with weights, whose claims
// wait in a pool. A [Queue] orders by priority, then by turns of tenants and of their environments. A
// [Limiter] lets starts of runners wait in one.
package fairqueue

import "iter"

// RoundRobin holds waiting items by key, in the order of turns. The zero value is empty. Every method
// except All takes constant time. It isn't safe for concurrent use.
type RoundRobin[K comparable, Q any] struct {
	byKey map[K]*Key[K, Q]
	first *Key[K, Q] // of a ring whose last key precedes it; nil means none
	spare *Key[K, Q] // reused, so that a key that arrives and leaves allocates nothing
}

// A Key is one key with its items.
type Key[K comparable, Q any] struct {
	ID    K
	Queue Q

	previous, next *Key[K, Q] // of the ring
}

// Len returns the number of keys.
func (l *RoundRobin[K, Q]) Len() int { return len(l.byKey) }

// First returns the key whose turn it is; nil means none.
func (l *RoundRobin[K, Q]) First() *Key[K, Q] { return l.first }

// Find returns the key with this id; nil means none.
func (l *RoundRobin[K, Q]) Find(id K) *Key[K, Q] { return l.byKey[id] }

// Key returns the key with this id, or a new empty one, whose turn comes last.
func (l *RoundRobin[K, Q]) Key(id K) *Key[K, Q] {
	if key := l.byKey[id]; key != nil {
		return key
	}
	key := l.spare
	if l.spare = nil; key == nil {
		key = new(Key[K, Q])
	}
	key.ID = id
	if l.byKey == nil {
		l.byKey = map[K]*Key[K, Q]{}
	}
	l.byKey[id] = key
	l.append(key)
	return key
}

// EndTurn ends a key's turn: its next turn comes after those of all others.
func (l *RoundRobin[K, Q]) EndTurn(key *Key[K, Q]) {
	if l.first == key { // rotating the ring is enough
		l.first = key.next
		return
	}
	l.unlink(key)
	l.append(key)
}

// Remove removes an existing key. The caller must not use it afterwards.
func (l *RoundRobin[K, Q]) Remove(key *Key[K, Q]) {
	delete(l.byKey, key.ID)
	l.unlink(key)
	*key = Key[K, Q]{}
	l.spare = key
}

// All yields the keys in the order of their turns. Nothing may change meanwhile.
func (l *RoundRobin[K, Q]) All() iter.Seq[*Key[K, Q]] {
	return func(yield func(*Key[K, Q]) bool) {
		for key := l.first; key != nil; {
			if !yield(key) {
				return
			}
			if key = key.next; key == l.first {
				return
			}
		}
	}
}

func (l *RoundRobin[K, Q]) append(key *Key[K, Q]) {
	if l.first == nil {
		l.first, key.previous, key.next = key, key, key
		return
	}
	last := l.first.previous
	key.previous, key.next = last, l.first
	last.next, l.first.previous = key, key
}

func (l *RoundRobin[K, Q]) unlink(key *Key[K, Q]) {
	if key.next == key {
		l.first = nil
		return
	}
	key.previous.next, key.next.previous = key.next, key.previous
	if l.first == key {
		l.first = key.next
	}
}
