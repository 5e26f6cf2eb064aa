package turns

import (
	"container/heap"
	"iter"
)

// Fair holds waiting items by key, where each key has a weight. A key of weight w gets w turns for
// each turn of a key of weight 1, evenly interleaved. While two keys wait, their turns divided by
// their weights differ by at most one turn of each. A key that leaves and returns gains nothing.
// Its next turn is no earlier than if it had stayed, and it gets no turns for the time in which it
// didn't wait.
//
// The algorithm is start-time fair queueing: Goyal, Vin and Cheng, "Start-time Fair Queuing: A
// Scheduling Algorithm for Integrated Services Packet Switching Networks", SIGCOMM 1996. A turn is
// a packet of length 1.
//
// The zero value is empty. A turn takes logarithmic time in the number of keys, and a key that
// arrives and leaves allocates nothing. It isn't safe for concurrent use.
type Fair[K comparable, Q any] struct {
	flows   map[K]*Flow[K, Q]
	clock   clock
	waiting int
	spare   *Flow[K, Q] // reused, so that a flow that arrives and leaves allocates nothing
}

// A Flow holds the items of one key of a [Fair].
type Flow[K comparable, Q any] struct {
	Key   K
	Queue Q // empty in a new and in a removed Flow; its memory may be reused for another key

	tag tag
}

// Len returns the number of waiting keys.
func (f *Fair[K, Q]) Len() int { return f.waiting }

// First returns the flow whose turn it is; nil means none.
func (f *Fair[K, Q]) First() *Flow[K, Q] {
	if len(f.clock.tags) == 0 {
		return nil
	}
	return f.clock.tags[0].flow.(*Flow[K, Q])
}

// Flow returns the flow of a key, or a new empty one. The weight applies from its next turn on;
// less than 1 means 1. The caller must put an item into an empty flow, or remove it.
func (f *Fair[K, Q]) Flow(key K, weight int) *Flow[K, Q] {
	flow := f.flows[key]
	switch {
	case flow == nil:
		if flow = f.spare; flow == nil {
			flow = new(Flow[K, Q])
		}
		f.spare = nil
		flow.Key = key
		if f.flows == nil {
			f.flows = map[K]*Flow[K, Q]{}
		}
		f.flows[key] = flow
		flow.tag = tag{flow: flow, start: f.clock.now, waits: true}
		f.clock.number(&flow.tag)
		heap.Push(&f.clock.tags, &flow.tag)
		f.waiting++
	case !flow.tag.waits:
		flow.tag.waits = true
		// A flow that returns has neither lost its last turn nor saved up others.
		flow.tag.start = max(flow.tag.start, f.clock.now)
		f.clock.number(&flow.tag)
		heap.Fix(&f.clock.tags, flow.tag.place)
		f.waiting++
	}
	flow.tag.weight = max(weight, 1)
	return flow
}

// EndTurn ends a flow's turn. The flow needn't be the first one. A flow that was passed over stays
// ahead, but gets only one turn for that, not all that it missed.
func (f *Fair[K, Q]) EndTurn(flow *Flow[K, Q]) {
	f.clock.endTurn(&flow.tag)
	f.forget()
}

// Remove removes a flow without items. The caller must not use it afterwards.
func (f *Fair[K, Q]) Remove(flow *Flow[K, Q]) {
	flow.tag.waits = false
	f.waiting--
	f.forget()
}

// forget drops flows that have left. A flow is remembered until its next turn would be the first of
// all. No other flow's turn starts before that, so virtual time may pass it.
func (f *Fair[K, Q]) forget() {
	for len(f.clock.tags) > 0 && !f.clock.tags[0].waits {
		left := heap.Pop(&f.clock.tags).(*tag)
		f.clock.now = max(f.clock.now, left.start)
		f.spare = left.flow.(*Flow[K, Q])
		delete(f.flows, f.spare.Key)
	}
	if len(f.clock.tags) == 0 {
		f.clock.now, f.clock.came = 0, 0
	}
}

// Order yields the flow of each following turn, assuming that no item arrives or leaves unserved.
// items returns the number of a flow's items. Nothing may change meanwhile.
func (f *Fair[K, Q]) Order(items func(*Flow[K, Q]) int) iter.Seq[*Flow[K, Q]] {
	return func(yield func(*Flow[K, Q]) bool) {
		// A simulation on copies, so that the real turns don't change.
		ahead := clock{now: f.clock.now, came: f.clock.came}
		copies := make([]tag, 0, f.waiting)
		for _, t := range f.clock.tags {
			if t.waits {
				copied := *t
				copied.items = items(t.flow.(*Flow[K, Q]))
				copies = append(copies, copied)
			}
		}
		for i := range copies {
			heap.Push(&ahead.tags, &copies[i])
		}
		for len(ahead.tags) > 0 {
			next := ahead.tags[0]
			if !yield(next.flow.(*Flow[K, Q])) {
				return
			}
			ahead.endTurn(next)
			if next.items--; next.items == 0 {
				heap.Remove(&ahead.tags, next.place)
			}
		}
	}
}

// turn is the virtual time of a turn of weight 1. Shares are exact to 1 in 16,000 for weights up to
// 1,000. Virtual time lasts for 10^12 turns, and restarts whenever nothing waits.
const turn = 1 << 24

// A clock is the virtual time of a [Fair], with the coming turns.
type clock struct {
	now  uint64 // the start of the last turn
	came uint64 // counts assigned starts; of equal starts the earlier assigned goes first
	tags tags
}

// A tag is the start of a flow's next turn.
type tag struct {
	flow   any
	weight int
	start  uint64 // in virtual time
	came   uint64
	waits  bool // false means the flow has left and is remembered
	place  int  // index in the heap
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
	heap.Fix(&c.tags, t.place)
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
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *tags) Push(t any) {
	t.(*tag).place = len(*h)
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
