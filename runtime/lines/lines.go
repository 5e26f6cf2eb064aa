package lines

import (
	"container/list"
	"context"
	"errors"
	"io"
	goruntime "runtime"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/output"
)

// A Query says which lines are wanted.
type Query struct {
	From       int64          // the number of the first; 1 or more
	Skip       int64          // how many lines of the stream to pass over first
	First      int            // how many at most, 1 to MaxFirst
	Last       bool           // instead of From and Skip: begin with the last First lines of the stream
	Stream     runtime.Stream // 0: both
	Containing string         // only lines in which this shows; "": all, and lost bytes
	MatchCase  bool
}

// A Page is what a query found.
type Page struct {
	Lines    []Line
	Before   int64 // lines of the stream before the first that was looked at
	Total    int64 // lines of the stream, as far as they were counted
	Counted  bool  // Total counts all that was printed until now
	More     bool  // the log goes on after what was looked at
	Next     int64 // the number to go on from; 0: the execution has ended, and nothing comes after these
	Position int64 // in the log, after all that was counted
	Offset   int64 // output bytes of both streams before that
}

// A Source is the log of one execution.
type Source struct {
	ID    runtime.ExecutionID
	Open  func(position int64) (*output.Reader, error)
	Ended bool
	Bytes int64         // that were printed, once it has ended
	After time.Duration // since its start, when it ended
}

// A Book has the indexes of the logs that were read last. Its methods may be called
// at once.
type Book struct {
	turns chan struct{} // bounds how many logs are read at once

	mu     sync.Mutex // guards what follows
	kept   map[runtime.ExecutionID]*list.Element
	latest *list.List // of *entry; the latest first
}

type entry struct {
	id   runtime.ExecutionID
	turn chan struct{} // holds one element while nobody uses index
	*index
}

// maxIndexes is how many indexes a book keeps: each takes 82 kB at most.
const maxIndexes = 64

// NewBook returns an empty Book.
func NewBook() *Book {
	return &Book{turns: make(chan struct{}, max(1, goruntime.GOMAXPROCS(0)/2)), kept: map[runtime.ExecutionID]*list.Element{}, latest: list.New()}
}

// entry returns the index of a log, and forgets the one that wasn't used for longest
// where there are too many.
func (b *Book) entry(id runtime.ExecutionID) *entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	if there := b.kept[id]; there != nil {
		b.latest.MoveToFront(there)
		return there.Value.(*entry)
	}
	if last := b.latest.Back(); b.latest.Len() == maxIndexes {
		delete(b.kept, last.Value.(*entry).id)
		b.latest.Remove(last)
	}
	e := &entry{id: id, turn: make(chan struct{}, 1), index: newIndex()}
	e.turn <- struct{}{}
	b.kept[id] = b.latest.PushFront(e)
	return e
}

// Read returns a page of lines: fewer than were asked for where they have 1 MiB of
// text, where a search went through 32 MiB of the log, and at the end. Next then says
// how to go on. Lines can be Open at the end of what was printed: if the page had room
// for more, Next is the number of the first of them, so they come again.
//
// A call counts 256 MiB of the log at most; what isn't counted yet isn't found. Then
// Counted is false, and the next call goes on. ctx's cause ends a call.
func (b *Book) Read(ctx context.Context, source Source, q Query) (Page, error) {
	select {
	case b.turns <- struct{}{}:
		defer func() { <-b.turns }()
	case <-ctx.Done():
		return Page{}, context.Cause(ctx)
	}
	page, err := b.entry(source.ID).page(ctx, source, q)
	if errors.Is(err, output.ErrPosition) { // the log was cut or damaged after it was counted
		b.forget(source.ID)
		page, err = b.entry(source.ID).page(ctx, source, q)
	}
	return page, err
}

func (b *Book) forget(id runtime.ExecutionID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if there := b.kept[id]; there != nil {
		delete(b.kept, id)
		b.latest.Remove(there)
	}
}

func (e *entry) page(ctx context.Context, source Source, q Query) (Page, error) {
	at, tail, all, err := e.find(ctx, source, &q)
	if err != nil {
		return Page{}, err
	}
	c := &collector{Query: q, match: newMatcher(q.Containing, q.MatchCase), before: -1}
	if err := c.read(ctx, &at, tail, source); err != nil {
		return Page{}, err
	}
	return c.page(at, tail, all, source), nil
}

// find counts on, and returns where to begin to read, and where to end. It says with which
// line q begins where it wants the last.
func (e *entry) find(ctx context.Context, source Source, q *Query) (at, tail place, all bool, err error) {
	select {
	case <-e.turn:
		defer func() { e.turn <- struct{}{} }()
	case <-ctx.Done():
		return at, tail, false, context.Cause(ctx)
	}
	tail, all, err = e.count(ctx, source.Open)
	if q.Last {
		end := tail
		if source.Ended && all {
			end.lose(source.Bytes-tail.offset, source.After, nil)
		}
		q.From, q.Skip = 1, max(0, end.begun[q.Stream]-int64(q.First))
	}
	if q.Skip > 0 {
		return e.before(int(q.Stream), q.Skip), tail, all, err
	}
	return e.before(0, q.From-1), tail, all, err
}

// read reads from a place on, until the page is full or the tail is reached. ErrPosition: the
// log isn't that which was counted.
func (c *collector) read(ctx context.Context, at *place, tail place, source Source) error {
	r, err := source.Open(at.position)
	if err != nil {
		return err
	}
	defer r.Close()
	began := at.position
	for n := 1; at.position < tail.position && !c.full(); n++ {
		record, err := r.TryNext()
		if errors.Is(err, io.EOF) || errors.Is(err, output.ErrWait) {
			return output.ErrPosition // there is less than was counted
		}
		if err == nil && n%checkEvery == 0 && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		at.take(record, c)
		at.position = r.Position()
		if c.closed == atNext || c.closed == 0 && c.match != nil && at.position-began > searchBytes {
			c.closed = at.begun[0] + 1
		}
	}
	return nil
}

// page returns what was found, once at came to the page's end or to the tail.
func (c *collector) page(at, tail place, all bool, source Source) Page {
	p := Page{Counted: all, Position: tail.position, Offset: tail.offset}
	ended := source.Ended && all
	open := c.rest(ended)
	if c.closed == atNext || c.closed > tail.begun[0] {
		c.closed = 0 // nothing began after what was taken
	}
	if ended {
		tail.lose(source.Bytes-tail.offset, source.After, nil)
		if c.closed == 0 {
			at.lose(source.Bytes-at.offset, source.After, c)
		}
	}
	p.Total = tail.begun[c.Stream]
	if p.Before = c.before; p.Before < 0 {
		p.Before = at.begun[c.Stream]
	}
	switch {
	case c.closed > 0:
		p.Next = c.closed
	case open > 0:
		p.Next = open
	case !ended:
		p.Next = max(at.begun[0]+1, c.From)
	}
	p.More = c.closed > 0 || !all || len(c.found) > c.First
	p.Lines = c.found
	if len(p.Lines) > c.First {
		p.Lines = p.Lines[:c.First]
		p.Next = p.Lines[c.First-1].Number + 1
	}
	return p
}
