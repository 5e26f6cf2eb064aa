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
	"github.com/rockpool/rockpool/runtime/turns"
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
	ID     runtime.ExecutionID
	Tenant runtime.TenantID
	Open   func(position int64) (*output.Reader, error)
	Ended  bool
	Bytes  int64         // that were printed, once it has ended
	After  time.Duration // since its start, when it ended
}

// A Book has the indexes of the logs that were read last. Its methods may be called
// at once.
type Book struct {
	turns turns.Slots // bounds how many logs are read at once: in the order in which tenants came

	mu      sync.Mutex // guards what follows
	tenants map[runtime.TenantID]*tenant
	kept    map[runtime.ExecutionID]*list.Element
	latest  *list.List // of *entry; the latest first
}

// A tenant has calls that read, or wait.
type tenant struct {
	turn  turns.Slots // one
	calls int         // guarded by Book.mu
}

type entry struct {
	id     runtime.ExecutionID
	tenant runtime.TenantID
	*index // used in the tenant's turn
}

// How many indexes a book keeps: each takes 82 kB at most.
const (
	maxIndexes       = 64
	maxTenantIndexes = 8
)

// NewBook returns an empty Book.
func NewBook() *Book {
	return &Book{
		turns: make(turns.Slots, max(1, goruntime.GOMAXPROCS(0)/2)), tenants: map[runtime.TenantID]*tenant{},
		kept: map[runtime.ExecutionID]*list.Element{}, latest: list.New(),
	}
}

// turn does work when it is the tenant's turn: its calls read one after the other.
func (b *Book) turn(ctx context.Context, id runtime.TenantID, work func() error) error {
	b.mu.Lock()
	t := b.tenants[id]
	if t == nil {
		t = &tenant{turn: make(turns.Slots, 1)}
		b.tenants[id] = t
	}
	t.calls++
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if t.calls--; t.calls == 0 {
			delete(b.tenants, id)
		}
	}()
	return t.turn.Do(ctx, func() error { return b.turns.Do(ctx, work) })
}

// entry returns the index of a log. Where the tenant, or all have too many, it forgets the one of them that
// wasn't used for longest.
func (b *Book) entry(source Source) *entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	if there := b.kept[source.ID]; there != nil {
		b.latest.MoveToFront(there)
		return there.Value.(*entry)
	}
	var last *list.Element // of the tenant
	n := 0
	for at := b.latest.Front(); at != nil; at = at.Next() {
		if at.Value.(*entry).tenant == source.Tenant {
			last = at
			n++
		}
	}
	if n < maxTenantIndexes {
		last = b.latest.Back()
	}
	if n == maxTenantIndexes || b.latest.Len() == maxIndexes {
		delete(b.kept, last.Value.(*entry).id)
		b.latest.Remove(last)
	}
	e := &entry{id: source.ID, tenant: source.Tenant, index: newIndex()}
	b.kept[source.ID] = b.latest.PushFront(e)
	return e
}

// Read returns a page of lines: fewer than were asked for where they have 1 MiB of
// text, where a search went through 32 MiB of the log or a million lines, and at the end. Next then says
// how to go on. Lines can be Open at the end of what was printed: if the page had room
// for more, Next is the number of the first of them, so they come again.
//
// A call counts as much of the log at most; what isn't counted yet isn't found. Then
// Counted is false, and the next call goes on. A call takes 0.2 s at most. Of each tenant one reads at a time, and the
// tenants take turns. ctx's cause ends a call.
func (b *Book) Read(ctx context.Context, source Source, q Query) (page Page, err error) {
	err = b.turn(ctx, source.Tenant, func() error {
		page, err = b.entry(source).page(ctx, source, q)
		if errors.Is(err, output.ErrPosition) { // the log was cut or damaged after it was counted
			b.forget(source.ID)
			page, err = b.entry(source).page(ctx, source, q)
		}
		return err
	})
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
	began := *at
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
		worked := at.position-began.position > workBytes || at.begun[0]-began.begun[0] > workLines
		if c.closed == atNext || c.closed == 0 && c.match != nil && worked && c.before >= 0 {
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
