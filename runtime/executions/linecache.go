package executions

import (
	"container/list"
	"context"
	"errors"
	"io"
	goruntime "runtime"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/fairqueue"
	"github.com/rockpool/rockpool/runtime/output"
)

type lineQuery struct {
	From       int64          // number of the first line, at least 1
	Skip       int64          // lines of the stream to skip first
	First      int            // most lines, 1 to maxLines
	Last       bool           // the last First lines of the stream, instead of From and Skip
	Stream     runtime.Stream // 0 means both
	Containing string         // only lines that visibly contain this; "" means all lines, and lost bytes
	MatchCase  bool
}

// A LinePage is the result of a query.
type LinePage struct {
	Lines    []Line
	Before   int64              // lines of the stream before the first one examined
	Total    int64              // lines of the stream counted so far
	Counted  bool               // Total counts everything printed so far
	More     bool               // the log continues after the part examined
	Next     int64              // From of the next page; 0 means the execution has ended, and there are no more lines
	Position int64              // in the log, after everything counted
	Offset   int64              // output bytes of both streams before Position
	Begun    runtime.Characters // of the output before Position
	Cursor   string             // after everything counted; set by Service.Lines
}

type lineSource struct {
	ID     runtime.ExecutionID
	Tenant runtime.TenantID
	Open   func(position int64) (*output.Reader, error)
	Ended  bool          // no more output follows
	Bytes  int64         // output bytes, once it has ended
	After  time.Duration // its duration, once it has ended
}

// A lineCache caches the indexes of the logs that were read last. Its methods are safe for concurrent use.
type lineCache struct {
	slots *fairqueue.TenantSlots // for reads; those of one tenant run one after the other

	mu     sync.Mutex // guards the fields below
	kept   map[runtime.ExecutionID]*list.Element
	latest *list.List // of *entry; most recently used first
}

// An entry is the cached index of one execution.
type entry struct {
	id     runtime.ExecutionID
	tenant runtime.TenantID
	*index // used only in the tenant's turn
}

// Limits of the cached indexes, which take at most 82 kB each.
const (
	maxIndexes       = 64
	maxTenantIndexes = 8
)

func newLineCache() *lineCache {
	return &lineCache{
		slots: fairqueue.NewTenantSlots(max(1, goruntime.GOMAXPROCS(0)/2), 1),
		kept:  map[runtime.ExecutionID]*list.Element{}, latest: list.New(),
	}
}

// entry returns the index of a log. If the tenant, or all together, have too many, it drops the one
// that was unused for longest.
func (c *lineCache) entry(source lineSource) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if there := c.kept[source.ID]; there != nil {
		c.latest.MoveToFront(there)
		return there.Value.(*entry)
	}
	var last *list.Element // least recently used one of the tenant
	n := 0
	for at := c.latest.Front(); at != nil; at = at.Next() {
		if at.Value.(*entry).tenant == source.Tenant {
			last = at
			n++
		}
	}
	// A tenant with fewer than its share may replace the index of another one.
	if n < maxTenantIndexes {
		last = c.latest.Back()
	}
	if n == maxTenantIndexes || c.latest.Len() == maxIndexes {
		delete(c.kept, last.Value.(*entry).id)
		c.latest.Remove(last)
	}
	e := &entry{id: source.ID, tenant: source.Tenant, index: newIndex()}
	c.kept[source.ID] = c.latest.PushFront(e)
	return e
}

// Read returns a page of lines. It has fewer than requested after 1 MiB of text, and at the end. So
// it has after a search of 32 MiB of the log or a million lines. Next then says how to continue. At
// the end of the output, lines can be Open. If the page had room for more, Next is the number of
// the first open line, so that it comes again.
//
// A call counts as much of the log at most. If that isn't all, Counted is false, uncounted lines
// aren't found, and the next call counts on. A call takes at most 0.2 s. One call of each tenant
// runs at a time, and tenants take turns. A call for the last lines takes several turns, until 8 GiB are
// counted. Read returns ctx's cause if ctx ends first.
func (c *lineCache) Read(ctx context.Context, source lineSource, q lineQuery) (page LinePage, err error) {
	done := false
	for turn := 1; err == nil && !done; turn++ {
		step := func() error {
			e := c.entry(source)
			tail, all, err := e.count(ctx, source.Open)
			if err != nil || q.Last && !all && turn < lastTurns {
				return err
			}
			page, err = e.page(ctx, source, q, tail, all)
			done = true
			return err
		}
		err = c.slots.Do(ctx, source.Tenant, func() error {
			err := step()
			if errors.Is(err, output.ErrPosition) { // the log was truncated or damaged after it was counted
				c.forget(source.ID)
				err = step()
			}
			return err
		})
	}
	return page, err
}

// lastTurns is how many turns a call for the last lines takes at most, to count up to the end.
const lastTurns = 256

func (c *lineCache) forget(id runtime.ExecutionID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if there := c.kept[id]; there != nil {
		delete(c.kept, id)
		c.latest.Remove(there)
	}
}

// page finds where to begin, and reads the page from there up to the tail. all says that the log ends there.
func (e *entry) page(ctx context.Context, source lineSource, q lineQuery, tail position, all bool) (LinePage, error) {
	at := e.find(source, &q, tail, all)
	c := &collector{lineQuery: q, match: newMatcher(q.Containing, q.MatchCase), before: -1}
	if err := c.read(ctx, &at, tail, source, e.inside); err != nil {
		return LinePage{}, err
	}
	page := c.page(at, tail, all, source)
	page.Begun = e.begun
	return page, nil
}

// find returns the position where reading begins. For Last it sets q's first line.
func (e *entry) find(source lineSource, q *lineQuery, tail position, all bool) position {
	if q.Last {
		end := tail
		if source.Ended && all {
			// Bytes that were lost at the end count as a line.
			end.lose(source.Bytes-tail.offset, source.After, nil)
		}
		q.From, q.Skip = 1, max(0, end.begun[q.Stream]-int64(q.First))
	}
	if q.Skip > 0 {
		return e.before(int(q.Stream), q.Skip)
	}
	return e.before(0, q.From-1)
}

// read reads from a position until the page is full or the tail is reached. It skips what an overwritten
// line has before the position that inside returns. It returns ErrPosition if the log isn't the one that was
// counted.
func (c *collector) read(ctx context.Context, at *position, tail position, source lineSource, inside func(position) position) error {
	r, err := source.Open(at.position)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	began := *at
	for n := 1; at.position < tail.position && !c.full(); n++ {
		record, err := r.TryNext()
		if errors.Is(err, io.EOF) || errors.Is(err, output.ErrWait) {
			return output.ErrPosition // the log is shorter than counted
		}
		if err == nil && n%checkEvery == 0 && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		at.advance(record, c)
		at.position = r.Position()
		if n%checkEvery == 0 && c.endsOnly() {
			if far := inside(*at); far.position > at.position {
				_ = r.Close() // it was only read
				if r, err = source.Open(far.position); err != nil {
					return err
				}
				*at = far
			}
		}
		worked := at.position-began.position > workBytes || at.begun[0]-began.begun[0] > workLines
		if c.closed == atNext || c.closed == 0 && c.match != nil && worked && c.before >= 0 {
			c.closed = at.begun[0] + 1
		}
	}
	return nil
}

// page returns the collected page. at is the end of reading.
func (c *collector) page(at, tail position, all bool, source lineSource) LinePage {
	p := LinePage{Counted: all, Position: tail.position, Offset: tail.offset}
	ended := source.Ended && all
	open := c.rest(ended)
	if c.closed == atNext || c.closed > tail.begun[0] {
		c.closed = 0 // no line began after the page
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
