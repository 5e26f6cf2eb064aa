package fairqueue

import (
	"container/heap"
	"iter"
)

// Weighted holds waiting items by tenant, where each tenant has a weight. A tenant of weight w gets w turns
// for each turn of a tenant of weight 1, evenly interleaved. While two tenants wait, their turns divided by
// their weights differ by at most one turn of each. A tenant that leaves and returns gains nothing.
// Its next turn is no earlier than if it had stayed, and it gets no turns for the time in which it
// didn't wait.
//
// The algorithm is start-time fair queueing: Goyal, Vin and Cheng, "Start-time Fair Queuing: A
// Scheduling Algorithm for Integrated Services Packet Switching Networks", SIGCOMM 1996. A turn is
// a packet of length 1.
//
// The zero value is empty. A turn takes logarithmic time in the number of tenants, and one that
// arrives and leaves allocates nothing. It isn't safe for concurrent use.
type Weighted[K comparable, Q any] struct {
	tenants map[K]*Tenant[K, Q]
	clock   clock
	waiting int
	spare   *Tenant[K, Q] // reused, so that a tenant that arrives and leaves allocates nothing
}

// A Tenant is one tenant of a [Weighted] with its items.
type Tenant[K comparable, Q any] struct {
	ID    K
	Queue Q // empty in a new and in a removed Tenant; its memory may be reused for another tenant

	tag tag
}

// Len returns the number of waiting tenants.
func (f *Weighted[K, Q]) Len() int { return f.waiting }

// First returns the tenant whose turn it is; nil means none.
func (f *Weighted[K, Q]) First() *Tenant[K, Q] {
	if len(f.clock.tags) == 0 {
		return nil
	}
	return f.clock.tags[0].tenant.(*Tenant[K, Q])
}

// Tenant returns the tenant with this id, or a new empty one. The weight applies from its next turn on;
// less than 1 means 1. The caller must put an item into an empty tenant, or remove it.
func (f *Weighted[K, Q]) Tenant(id K, weight int) *Tenant[K, Q] {
	tenant := f.tenants[id]
	switch {
	case tenant == nil:
		if tenant = f.spare; tenant == nil {
			tenant = new(Tenant[K, Q])
		}
		f.spare = nil
		tenant.ID = id
		if f.tenants == nil {
			f.tenants = map[K]*Tenant[K, Q]{}
		}
		f.tenants[id] = tenant
		tenant.tag = tag{tenant: tenant, start: f.clock.now, waits: true}
		f.clock.number(&tenant.tag)
		heap.Push(&f.clock.tags, &tenant.tag)
		f.waiting++
	case !tenant.tag.waits:
		tenant.tag.waits = true
		// A tenant that returns has neither lost its last turn nor saved up others.
		tenant.tag.start = max(tenant.tag.start, f.clock.now)
		f.clock.number(&tenant.tag)
		heap.Fix(&f.clock.tags, tenant.tag.index)
		f.waiting++
	}
	tenant.tag.weight = max(weight, 1)
	return tenant
}

// EndTurn ends a tenant's turn. The tenant needn't be the first one. A tenant that was passed over stays
// ahead, but gets only one turn for that, not all that it missed.
func (f *Weighted[K, Q]) EndTurn(tenant *Tenant[K, Q]) {
	f.clock.endTurn(&tenant.tag)
	f.forget()
}

// Remove removes a tenant without items. The caller must not use it afterwards.
func (f *Weighted[K, Q]) Remove(tenant *Tenant[K, Q]) {
	tenant.tag.waits = false
	f.waiting--
	f.forget()
}

// forget drops tenants that have left. A tenant is remembered until its next turn would be the first of
// all. No other tenant's turn starts before that, so virtual time may pass it.
func (f *Weighted[K, Q]) forget() {
	for len(f.clock.tags) > 0 && !f.clock.tags[0].waits {
		left := heap.Pop(&f.clock.tags).(*tag)
		f.clock.now = max(f.clock.now, left.start)
		f.spare = left.tenant.(*Tenant[K, Q])
		delete(f.tenants, f.spare.ID)
	}
	if len(f.clock.tags) == 0 {
		f.clock.now, f.clock.came = 0, 0
	}
}

// Order yields the tenant of each following turn, assuming that no item arrives or leaves unserved.
// items returns the number of a tenant's items. Nothing may change meanwhile.
func (f *Weighted[K, Q]) Order(items func(*Tenant[K, Q]) int) iter.Seq[*Tenant[K, Q]] {
	return func(yield func(*Tenant[K, Q]) bool) {
		// A simulation on copies, so that the real turns don't change.
		ahead := clock{now: f.clock.now, came: f.clock.came}
		copies := make([]tag, 0, f.waiting)
		for _, t := range f.clock.tags {
			if t.waits {
				copied := *t
				copied.items = items(t.tenant.(*Tenant[K, Q]))
				copies = append(copies, copied)
			}
		}
		for i := range copies {
			heap.Push(&ahead.tags, &copies[i])
		}
		for len(ahead.tags) > 0 {
			next := ahead.tags[0]
			if !yield(next.tenant.(*Tenant[K, Q])) {
				return
			}
			ahead.endTurn(next)
			if next.items--; next.items == 0 {
				heap.Remove(&ahead.tags, next.index)
			}
		}
	}
}

// turn is the virtual time of a turn of weight 1. Shares are exact to 1 in 16,000 for weights up to
// 1,000. Virtual time lasts for 10^12 turns, and restarts whenever nothing waits.
const turn = 1 << 24

// A clock is the virtual time of a [Weighted], with the coming turns.
type clock struct {
	now  uint64 // the start of the last turn
	came uint64 // counts assigned starts; of equal starts the earlier assigned goes first
	tags tags
}

// A tag is the start of a tenant's next turn.
type tag struct {
	tenant any
	weight int
	start  uint64 // in virtual time
	came   uint64
	waits  bool // false means the tenant has left and is remembered
	index  int  // index in the heap
	items  int  // in a copy made by Order: items left
}

// number makes t the last of all tags with an equal start.
func (c *clock) number(t *tag) {
	c.came++
	t.came = c.came
}

// endTurn advances the virtual time to the start of t's turn, and schedules its next turn. With a
// larger weight, the next turn starts earlier.
func (c *clock) endTurn(t *tag) {
	c.now = max(c.now, t.start)
	t.start = c.now + turn/uint64(t.weight)
	c.number(t)
	heap.Fix(&c.tags, t.index)
}

// tags is a heap.Interface, ordered by the next turn.
type tags []*tag

func (h tags) Len() int { return len(h) }
func (h tags) Less(i, j int) bool {
	if h[i].start != h[j].start {
		return h[i].start < h[j].start
	}
	return h[i].came < h[j].came
}
func (h tags) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *tags) Push(t any) {
	t.(*tag).index = len(*h)
	*h = append(*h, t.(*tag))
}

// Pop implements heap.Interface.
func (h *tags) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return t
}
