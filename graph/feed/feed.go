// Package feed reads an execution's events once for all who watch it live, and
// encodes its output once for all who select the same fields.
//
// A watcher that is behind reads the log by itself; at the live end it joins
// the others. One that can't keep their pace leaves them again, so it holds
// nothing but the message that it is at. Every watcher gets every event once,
// in order, whichever way it came.
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
)

// A Source is what is read: events.Reader.
type Source interface {
	Next(ctx context.Context) (events.Event, error)
	TryNext() (events.Event, error)
	Until(cursor string)
	Ended() <-chan struct{}
	Close() error
}

// An Item is an event. Encoded is there for output only; it is shared, so
// nobody changes it.
type Item struct {
	Event   events.Event
	Encoded []byte
}

// A Key says what watchers must have in common to share: the execution, how its
// output is encoded, and whether sizes of its terminal are among the events.
type Key struct {
	Execution runtime.ExecutionID
	Selection string
	Resizes   bool
}

const (
	keep  = 1 << 20   // bytes that a feed keeps at most for those of its members that are behind
	all   = 64 * keep // bytes that all feeds keep, beside the newest event of each
	extra = 512       // bytes that any event costs beside what is encoded: there are ones without output
	ahead = 4         // events that a feed reads before its fastest member

	// What comes in small pieces is gathered for so long, and a little longer
	// for each member: a message for a thousand costs 30 ms of one CPU.
	tick       = 2 * time.Millisecond
	tickMember = 25 * time.Microsecond
	tickMost   = 50 * time.Millisecond
)

// Feeds are those that have members now. The zero value is ready.
type Feeds struct {
	bytes atomic.Int64 // that all of them keep
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
	moved   chan struct{} // capacity 1: the fastest member took one
	members int

	mu     sync.Mutex // guards what follows, and the nodes
	tail   *node
	newest string           // the last cursor that can be joined at
	oldest *node            // of those kept
	places map[string]*node // by cursor, of those kept
	bytes  int
	first  int64 // number of the newest event that a member took
	crowd  int   // members, as the ticks count them
}

// A node is one event in a feed's list.
type node struct {
	number int64
	item   Item
	err    error
	ready  chan struct{} // closed once next is there
	next   *node
	gone   bool // not kept any more
}

func (n *node) cost() int { return extra + len(n.item.Encoded) }

// newFeed starts a feed after a cursor that its source is at.
func newFeed(feeds *Feeds, source Source, cursor string, encode func(events.Event) []byte) *feed {
	ctx, cancel := context.WithCancel(context.Background())
	start := &node{ready: make(chan struct{})}
	f := &feed{
		feeds: feeds, source: source, encode: encode, cancel: cancel, done: make(chan struct{}),
		moved: make(chan struct{}, 1),
		tail:  start, newest: cursor, oldest: start, places: map[string]*node{cursor: start}, bytes: start.cost(),
	}
	start.item.Event.Cursor = cursor
	feeds.bytes.Add(int64(start.cost()))
	go f.run(ctx)
	return f
}

func (f *feed) run(ctx context.Context) {
	defer close(f.done)
	defer f.source.Close()
	for f.wanted(ctx) {
		event, err := f.source.Next(ctx)
		if ctx.Err() != nil {
			return
		}
		next := &node{item: Item{Event: event}, err: err, ready: make(chan struct{})}
		if err == nil && event.Kind == events.Output {
			next.item.Encoded = f.encode(event)
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

// wanted waits until a member is near the end; else all are slow, and what
// would be read is for nobody.
func (f *feed) wanted(ctx context.Context) bool {
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

// pause lets small pieces gather. The first after a silence has gone already,
// and the end is not waited for.
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

func (f *feed) append(next *node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next.number = f.tail.number + 1
	f.tail.next = next
	close(f.tail.ready)
	f.tail = next
	f.bytes += next.cost()
	// The end has the cursor of what was before it, and comes again to whom
	// resumes there.
	if next.err == nil && next.item.Event.Kind != events.Finished {
		f.newest = next.item.Event.Cursor
		f.places[f.newest] = next
	}
	f.feeds.bytes.Add(int64(next.cost()))
	for f.oldest != next && (f.bytes > keep || f.feeds.bytes.Load() > all) {
		f.drop()
	}
}

// drop forgets the oldest node, so that a member that stands there holds none
// of those after it.
func (f *feed) drop() {
	old := f.oldest
	f.oldest = old.next
	f.bytes -= old.cost()
	f.feeds.bytes.Add(int64(-old.cost()))
	if f.places[old.item.Event.Cursor] == old {
		delete(f.places, old.item.Event.Cursor)
	}
	old.item, old.next, old.gone = Item{}, nil, true
}

// after waits for the node after at. It is nil where at, or that, is not kept
// any more.
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
	if next.number > f.first {
		f.first = next.number
		hint(f.moved)
	}
	return next, next.item, next.err
}

// A Watcher reads one execution's events. It is for one goroutine. Close it.
type Watcher struct {
	feeds  *Feeds
	key    Key
	open   func(after string) (Source, error)
	encode func(events.Event) []byte
	cursor string // after what was read
	over   bool

	source Source // while it reads by itself
	feed   *feed  // while it is a member
	at     *node
}

// Watch opens a watcher after a cursor. encode must be the same for all with
// this key. open is called again whenever the watcher falls behind.
func (f *Feeds) Watch(key Key, after string, open func(after string) (Source, error), encode func(events.Event) []byte) (*Watcher, error) {
	source, err := open(after)
	if err != nil {
		return nil, err
	}
	return &Watcher{feeds: f, key: key, open: open, encode: encode, cursor: after, source: source}, nil
}

// Close leaves.
func (w *Watcher) Close() {
	w.leave()
	if w.source != nil {
		_ = w.source.Close() // it was only read
		w.source = nil
	}
}

// Next waits for the next event; after events.Finished comes io.EOF.
func (w *Watcher) Next(ctx context.Context) (Item, error) {
	item, err := w.next(ctx)
	if err == nil {
		w.cursor = item.Event.Cursor
		w.over = item.Event.Kind == events.Finished
	}
	return item, err
}

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
			w.leave() // it fell behind, and goes on alone
			if w.source, err = w.open(w.cursor); err != nil {
				return Item{}, err
			}
		}
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

// join becomes a member if the feed has the place that the watcher is at; else
// the watcher's next events are cut so that it comes to such a place.
func (w *Watcher) join() bool {
	w.feeds.mu.Lock()
	defer w.feeds.mu.Unlock()
	f := w.feeds.live[w.key]
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.places[w.cursor]
	if at == nil {
		w.source.Until(f.newest)
		return false
	}
	w.enter(f, at)
	_ = w.source.Close() // it was only read
	w.source = nil
	return true
}

// enter needs both locks.
func (w *Watcher) enter(f *feed, at *node) {
	f.members++
	f.crowd = f.members
	w.feed, w.at = f, at
}

// wait is for a watcher at the live end. It starts the feed if there is none.
// Where there is one that has not come so far, it waits for that to go on.
func (w *Watcher) wait(ctx context.Context) error {
	w.feeds.mu.Lock()
	f := w.feeds.live[w.key]
	if f == nil {
		f = newFeed(w.feeds, w.source, w.cursor, w.encode)
		if w.feeds.live == nil {
			w.feeds.live = map[Key]*feed{}
		}
		w.feeds.live[w.key] = f
		w.source = nil
		f.mu.Lock()
		w.enter(f, f.places[w.cursor])
		f.mu.Unlock()
		w.feeds.mu.Unlock()
		return nil
	}
	f.mu.Lock()
	tail := f.tail
	f.first = tail.number // nobody is nearer to the end
	hint(f.moved)
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

// leave ends the membership; the last one ends the feed.
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
		f.cancel()
		<-f.done
		f.feeds.bytes.Add(int64(-f.bytes))
	}
}

func hint(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
