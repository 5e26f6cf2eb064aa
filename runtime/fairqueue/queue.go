package fairqueue

import (
	"cmp"
	"iter"
	"slices"

	"github.com/rockpool/rockpool/runtime"
)

// A Queue holds items by priority, highest first. Within a priority the tenants take turns, and
// within a tenant its keys. The items of one key are ordered by Compare. So the first item of a
// tenant waits for at most one item of each other tenant with the same priority, no matter how many
// keys those have. The same holds for the keys of one tenant. It isn't safe for concurrent use.
type Queue[K, T comparable] struct {
	Compare func(a, b T) int // order of the items of one key; no two may be equal

	levels []*Level[K, T] // highest priority first
	length int
}

// A Level contains a Queue's items of one priority: for each tenant the items of each of its keys,
// in order. No key has none.
type Level[K, T comparable] struct {
	Priority runtime.Priority
	tenants  RoundRobin[runtime.TenantID, RoundRobin[K, []T]]
}

// Len returns the number of items.
func (q *Queue[K, T]) Len() int { return q.length }

// Push adds an item of a tenant's key.
func (q *Queue[K, T]) Push(tenant runtime.TenantID, id K, priority runtime.Priority, item T) {
	at, found := q.find(priority)
	if !found {
		q.levels = slices.Insert(q.levels, at, &Level[K, T]{Priority: priority})
	}
	key := q.levels[at].tenants.Key(tenant).Queue.Key(id)
	index, _ := slices.BinarySearchFunc(key.Queue, item, q.Compare)
	key.Queue = slices.Insert(key.Queue, index, item)
	q.length++
}

// find returns the index of a priority's level. If there is none, at is where to insert it.
func (q *Queue[K, T]) find(priority runtime.Priority) (at int, found bool) {
	return slices.BinarySearchFunc(q.levels, priority, func(l *Level[K, T], p runtime.Priority) int { return cmp.Compare(p, l.Priority) })
}

// Levels returns the levels with items, highest priority first.
func (q *Queue[K, T]) Levels() []*Level[K, T] { return slices.Clone(q.levels) }

// All yields every item of l. Nothing may change meanwhile.
func (l *Level[K, T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		for tenant := range l.tenants.All() {
			for key := range tenant.Queue.All() {
				for _, item := range key.Queue {
					if !yield(item) {
						return
					}
				}
			}
		}
	}
}

// Pop removes and returns the first item, and returns false if there is none.
func (q *Queue[K, T]) Pop() (item T, ok bool) {
	if len(q.levels) == 0 {
		return item, false
	}
	return q.Take(q.levels[0], func(T) bool { return true })
}

// Take removes and returns the first item of a level that fits, and returns false if none does.
func (q *Queue[K, T]) Take(level *Level[K, T], fits func(T) bool) (item T, ok bool) {
	for tenant := range level.tenants.All() {
		for key := range tenant.Queue.All() {
			at := slices.IndexFunc(key.Queue, fits)
			if at < 0 {
				continue
			}
			item = key.Queue[at]
			tenant.Queue.EndTurn(key)
			level.tenants.EndTurn(tenant)
			q.drop(level, tenant, key, at)
			return item, true
		}
	}
	return item, false
}

// Remove removes an item that was pushed with this tenant, key and priority, and reports whether it
// was there.
func (q *Queue[K, T]) Remove(tenant runtime.TenantID, id K, priority runtime.Priority, item T) bool {
	level, found := q.find(priority)
	if !found {
		return false
	}
	keys := q.levels[level].tenants.Find(tenant)
	if keys == nil {
		return false
	}
	key := keys.Queue.Find(id)
	if key == nil {
		return false
	}
	at := slices.Index(key.Queue, item)
	if at >= 0 {
		q.drop(q.levels[level], keys, key, at)
	}
	return at >= 0
}

// drop removes one item of a key, and every key and level that is empty then.
func (q *Queue[K, T]) drop(level *Level[K, T], tenant *Key[runtime.TenantID, RoundRobin[K, []T]], key *Key[K, []T], at int) {
	// The usual case takes constant time. Clearing the element releases the item's memory.
	if at == 0 {
		var none T
		key.Queue[0] = none
		key.Queue = key.Queue[1:]
	} else {
		key.Queue = slices.Delete(key.Queue, at, at+1)
	}
	q.length--
	if len(key.Queue) > 0 {
		return
	}
	if tenant.Queue.Remove(key); tenant.Queue.Len() > 0 {
		return
	}
	if level.tenants.Remove(tenant); level.tenants.Len() == 0 {
		q.levels = slices.DeleteFunc(q.levels, func(l *Level[K, T]) bool { return l == level })
	}
}
