// Package feed reads an execution's events once for all its live subscribers, and encodes its
// output once for all that select the same fields.
//
// A watcher that is behind reads the log separately. At the live end it joins the feed. A watcher
// that is too slow for the feed leaves it again, so it holds only the message that it is at. Each
// watcher gets each event once, in order, whether from the log or from the feed.
package feed

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/syncs"
)

// A Source is what a feed reads: an events.Reader.
type Source interface {
	Next(ctx context.Context) (events.Event, error)
	TryNext() (events.Event, error)
	Until(cursor string)
	Ended() <-chan struct{}
	Close() error
}

// An Item is an event. Only output has Encoded, which is shared: don't change it.
type Item struct {
	Event   events.Event
	Encoded []byte
}

// A Key identifies the watchers that can share a feed: those with the same execution, the same
// encoding of its output, and the same choice about terminal sizes.
type Key struct {
	Execution runtime.ExecutionID
	Selection string
	Resizes   bool
}

const (
	keep  = 1 << 20   // the most bytes that a feed keeps for members that are behind
	all   = 64 * keep // the most bytes that all feeds keep, without the newest event of each
	extra = 512       // bytes that each event costs in addition to Encoded, since some events have no output
	ahead = 4         // how many events a feed reads before its fastest member

	// The time to collect small pieces. It grows with the members, because one message to a
	// thousand members costs 30 ms of one CPU.
	tick       = 2 * time.Millisecond
	tickMember = 25 * time.Microsecond
	tickMost   = 50 * time.Millisecond
)

// Feeds are the feeds that have members. The zero value is ready to use. It is safe for concurrent
// use.
type Feeds struct {
	bytes atomic.Int64 // that all feeds keep
	mu    sync.Mutex   // guards live, and the feeds' members
	live  map[Key]*feed
}

// A feed is one goroutine that reads for all its members.
type feed struct {
	feeds   *Feeds
	source  Source
	encode  func(events.Event) []byte
	cancel  context.CancelFunc
	done    chan struct{}
	moved   syncs.Hint // the fastest member advanced
	members int

	mu     sync.Mutex // guards the fields below, and the nodes
	tail   *node
	newest string           // the last cursor at which a watcher can join
	oldest *node            // the oldest kept node
	nodes  map[string]*node // the kept nodes by cursor
	bytes  int
	first  int64 // number of the newest event that a member got
	crowd  int   // members, for the pause
}

// A node is one event in a feed's list.
type node struct {
	number int64
	item   Item
	err    error
	ready  chan struct{} // closed when next is set
	next   *node
	gone   bool // it is no longer kept
}

// cost returns the bytes that the node counts towards the limits.
func (n *node) cost() int { return extra + len(n.item.Encoded) }

// newFeed starts a feed at a cursor, which is the source's position.
func newFeed(feeds *Feeds, source Source, cursor string, encode func(events.Event) []byte) *feed {
	ctx, cancel := context.WithCancel(context.Background())
	// The list begins with a node without an event. The first member joins there.
	start := &node{ready: make(chan struct{})}
	f := &feed{
		feeds: feeds, source: source, encode: encode, cancel: cancel, done: make(chan struct{}),
		moved: syncs.NewHint(),
		tail:  start, newest: cursor, oldest: start, nodes: map[string]*node{cursor: start}, bytes: start.cost(),
	}
	start.item.Event.Cursor = cursor
	feeds.bytes.Add(int64(start.cost()))
	go f.run(ctx)
	return f
}

// run reads events and appends them to the list, until ctx ends or an error is appended. It closes
// the source.
func (f *feed) run(ctx context.Context) {
	defer close(f.done)
	defer f.source.Close()
	for f.waitForMember(ctx) {
		event, err := f.source.Next(ctx)
		if ctx.Err() != nil {
			return
		}
		next := &node{item: Item{Event: event}, err: err, ready: make(chan struct{})}
		if err == nil && event.Kind == events.Output {
			next.item.Encoded = f.encode(event)
			// Only Encoded is kept: a source may lend Data just until its next event.
			next.item.Event.Data = nil
		}
		f.append(next)
		if err != nil {
			return
		}
		if event.Kind == events.Output && len(event.Data) < events.MaxBytes/2 {
			f.pause(ctx)
		}
	}
}

// waitForMember waits until a member is near the end. Until then all members are slow, and nobody needs
// the next event. It returns false when ctx has ended.
func (f *feed) waitForMember(ctx context.Context) bool {
	for {
		f.mu.Lock()
		near := f.tail.number-f.first < ahead
		f.mu.Unlock()
		if near {
			return ctx.Err() == nil
		}
		select {
		case <-f.moved:
		case <-ctx.Done():
			return false
		}
	}
}

// pause collects small pieces. The first piece after a silence has been sent already. The pause
// ends early if the execution ends.
func (f *feed) pause(ctx context.Context) {
	f.mu.Lock()
	wait := min(tick+time.Duration(f.crowd)*tickMember, tickMost)
	f.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.source.Ended():
	case <-ctx.Done():
	}
}

// append adds a node at the end of the list, wakes the waiting members, and drops the oldest nodes
// beyond the limits of memory.
func (f *feed) append(next *node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next.number = f.tail.number + 1
	f.tail.next = next
	close(f.tail.ready)
	f.tail = next
	f.bytes += next.cost()
	// The last event has the cursor of the event before it, since it is sent again to a subscriber
	// that resumes there.
	if next.err == nil && next.item.Event.Kind != events.Finished {
		f.newest = next.item.Event.Cursor
		f.nodes[f.newest] = next
	}
	f.feeds.bytes.Add(int64(next.cost()))
	for f.oldest != next && (f.bytes > keep || f.feeds.bytes.Load() > all) {
		f.drop()
	}
}

// drop removes the oldest node. A member at that node then keeps none of the nodes after it in
// memory.
func (f *feed) drop() {
	old := f.oldest
	f.oldest = old.next
	f.bytes -= old.cost()
	f.feeds.bytes.Add(int64(-old.cost()))
	if f.nodes[old.item.Event.Cursor] == old {
		delete(f.nodes, old.item.Event.Cursor)
	}
	old.item, old.next, old.gone = Item{}, nil, true
}

// after waits for the node after at. It returns nil if at or the next node is no longer kept.
func (f *feed) after(ctx context.Context, at *node) (*node, Item, error) {
	select {
	case <-at.ready:
	case <-ctx.Done():
		return nil, Item{}, context.Cause(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	next := at.next
	if next == nil || next.gone {
		return nil, Item{}, nil
	}
	// This is the fastest member now, so run may read further.
	if next.number > f.first {
		f.first = next.number
		f.moved.Send()
	}
	return next, next.item, next.err
}

// A Watcher reads one execution's events. Use it in one goroutine, and Close it.
type Watcher struct {
	feeds  *Feeds
	key    Key
	open   func(after string) (Source, error)
	encode func(events.Event) []byte
	cursor string // of the last event
	over   bool

	source Source // while it reads separately
	feed   *feed  // while it is a member
	at     *node
}

// Watch opens a watcher at a cursor. encode must be the same for all watchers with this key. open
// is called again each time the watcher falls behind.
func (f *Feeds) Watch(key Key, after string, open func(after string) (Source, error), encode func(events.Event) []byte) (*Watcher, error) {
	source, err := open(after)
	if err != nil {
		return nil, err
	}
	return &Watcher{feeds: f, key: key, open: open, encode: encode, cursor: after, source: source}, nil
}

// Close leaves the feed and closes the source.
func (w *Watcher) Close() {
	w.leave()
	if w.source != nil {
		_ = w.source.Close() // it was only read
		w.source = nil
	}
}

// Next waits for the next event. After events.Finished it returns io.EOF. It returns the cause of
// ctx when ctx ends.
func (w *Watcher) Next(ctx context.Context) (Item, error) {
	item, err := w.next(ctx)
	if err == nil {
		w.cursor = item.Event.Cursor
		w.over = item.Event.Kind == events.Finished
	}
	return item, err
}

// next returns the next event from the feed or from the watcher's own source.
func (w *Watcher) next(ctx context.Context) (Item, error) {
	if w.over {
		return Item{}, io.EOF
	}
	for {
		if w.feed != nil || w.join() {
			next, item, err := w.feed.after(ctx, w.at)
			if next != nil || err != nil {
				w.at = next
				return item, err
			}
			w.leave() // it fell behind, and continues separately
			if w.source, err = w.open(w.cursor); err != nil {
				return Item{}, err
			}
		}
		// Without a feed, read the log and don't wait: at the live end, the watcher joins or starts
		// a feed.
		event, err := w.source.TryNext()
		if errors.Is(err, events.ErrWait) {
			if err := w.wait(ctx); err != nil {
				return Item{}, err
			}
			continue
		}
		if err != nil {
			return Item{}, err
		}
		item := Item{Event: event}
		if event.Kind == events.Output {
			item.Encoded = w.encode(event)
			item.Event.Data = nil
		}
		return item, nil
	}
}

// join makes the watcher a member if the feed keeps the watcher's position. Otherwise it limits the
// watcher's next events so that they end at such a position.
func (w *Watcher) join() bool {
	w.feeds.mu.Lock()
	defer w.feeds.mu.Unlock()
	f := w.feeds.live[w.key]
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.nodes[w.cursor]
	if at == nil {
		w.source.Until(f.newest)
		return false
	}
	w.enter(f, at)
	_ = w.source.Close() // it was only read
	w.source = nil
	return true
}

// enter adds the watcher to f. Its caller holds both locks.
func (w *Watcher) enter(f *feed, at *node) {
	f.members++
	f.crowd = f.members
	w.feed, w.at = f, at
}

// wait is for a watcher at the live end. It starts the feed if there is none. If the feed is behind
// this watcher, it waits until the feed advances.
func (w *Watcher) wait(ctx context.Context) error {
	w.feeds.mu.Lock()
	f := w.feeds.live[w.key]
	if f == nil {
		// The feed takes over the source.
		f = newFeed(w.feeds, w.source, w.cursor, w.encode)
		if w.feeds.live == nil {
			w.feeds.live = map[Key]*feed{}
		}
		w.feeds.live[w.key] = f
		w.source = nil
		f.mu.Lock()
		w.enter(f, f.nodes[w.cursor])
		f.mu.Unlock()
		w.feeds.mu.Unlock()
		return nil
	}
	f.mu.Lock()
	tail := f.tail
	f.first = tail.number // no member is nearer to the end
	f.moved.Send()
	f.mu.Unlock()
	w.feeds.mu.Unlock()
	select {
	case <-tail.ready:
	case <-f.done: // its last member left, or the execution ended
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// leave ends the membership. The last member's leave ends the feed.
func (w *Watcher) leave() {
	f := w.feed
	if f == nil {
		return
	}
	w.feed, w.at = nil, nil
	w.feeds.mu.Lock()
	f.members--
	last := f.members == 0
	if last {
		delete(w.feeds.live, w.key)
	}
	f.mu.Lock()
	f.crowd = f.members
	f.mu.Unlock()
	w.feeds.mu.Unlock()
	if last {
		// Wait for run, which may still add nodes, before their bytes are subtracted.
		f.cancel()
		<-f.done
		f.feeds.bytes.Add(int64(-f.bytes))
	}
}
