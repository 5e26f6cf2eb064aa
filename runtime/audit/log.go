// Package audit records who did what to which object, from where, and with which outcome. A [Log] is
// append-only: entries never change, and only entries older than [Config.Keep] are deleted.
//
// Entries are written asynchronously: Append queues an entry, and one goroutine stores the queue, within
// milliseconds. While the store doesn't accept them, entries wait: see [Log.Problem]. When too many wait,
// [Log.Room] refuses operations that would add one. A server that is killed (SIGKILL, a power cut) loses
// the waiting entries. A server that stops stores them, and hands those that can't be stored to
// [Config.Unstored].
package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/runtime/syncs"
	"github.com/rockpool/rockpool/runtime/timing"
)

// mostWaiting bounds the entries that wait in memory, of about 500 bytes each, before Room refuses
// more. One tenant gets at most half of them.
const mostWaiting = 100_000

const (
	firstPause = 20 * time.Millisecond // between attempts to store entries
	lastPause  = time.Second           // each pause is twice the one before, up to this

	// attemptWithin bounds one attempt to store entries, for a database that stalls or is unavailable.
	attemptWithin = 5 * time.Second
	lastWithin    = 2 * time.Second // how long a log that ends tries to store waiting entries
	flushWithin   = 2 * time.Second // how long a query waits for entries that aren't stored yet
)

// Store stores entries. [store.Store] implements it.
type Store interface {
	// AppendAudit may be repeated with the same rows. It returns when ctx ends.
	AppendAudit(ctx context.Context, rows []store.AuditRow) error
	Audit(ctx context.Context, q store.AuditFilter, first int, after string) ([]store.AuditRow, bool, error)
	DeleteAudit(ctx context.Context, before time.Time, most int) (deleted int, err error)
}

// Config are a [Log]'s settings.
type Config struct {
	Store  Store
	Keep   time.Duration // how long entries are kept; 0 means forever
	Lines  string        // path of a file to append entries to as JSON; "-" means Stdout; "" means none
	Stdout io.Writer

	// Failing is called when a part of the log begins to fail, or fails for another reason, and with nil
	// when all parts work again. Meanwhile the log retries. May be nil.
	Failing func(error)

	// Unstored is called with the entries that aren't stored when the log ends, as JSON. Those waiting
	// at that time are also in Lines, if that is writable. May be nil.
	Unstored func(entries []json.RawMessage)
}

// A Log is an audit log. Make it with New and call Run. Its methods are safe for concurrent use.
type Log struct {
	config Config
	clock  timing.Clock  // of the entries and their retention
	lines  *lines        // nil means none
	wake   chan struct{} // capacity 1; signals that the queue isn't empty

	refusals refusals

	mu       sync.Mutex // guards the fields below
	queue    []Entry
	shares   quota.Bound // of the queue
	ids      clock
	stored   uint64        // number of entries stored
	failures uint64        // number of failed attempts to store entries
	changed  chan struct{} // closed and replaced when stored, failures or ended change
	closed   bool          // the queue accepts nothing more
	ended    bool          // nothing more is stored
	problems [parts]error
}

// A part is a part of a log that can fail on its own.
type part int

const (
	storing  part = iota // entries into the database
	deleting             // old entries
	copying              // lines to the file or stream
	parts                // the number of parts
)

var (
	// ErrEnded says that the log has ended.
	ErrEnded error = runtime.Errorf(runtime.CodeClusterUnavailable, "the server is stopping")
	// ErrFull says that too many entries wait to be stored.
	ErrFull error = runtime.Errorf(runtime.CodeClusterUnavailable, "the audit log's queue is full: %d entries may wait for the database, half of them of one tenant. Operations that must be recorded are refused until then; see `health` for the reason", mostWaiting)

	errLate = errors.New("the database hasn't responded within 5 s")
)

// New returns a log, or an error if Lines can't be opened. Call Run.
func New(c Config) (*Log, error) {
	l := &Log{config: c, clock: timing.NewClock(), wake: make(chan struct{}, 1), changed: make(chan struct{}), shares: quota.Bound{Limit: mostWaiting}}
	if c.Lines == "" {
		return l, nil
	}
	var err error
	if l.lines, err = newLines(c.Lines, c.Stdout, func(err error) { l.report(copying, err) }); err != nil {
		return nil, fmt.Errorf("copy the audit log to %s: %w", c.Lines, err)
	}
	return l, nil
}

// Room returns nil if the log accepts an entry of a tenant, and ErrFull or ErrEnded otherwise. Call
// it before an operation that adds an entry, and fail the operation with its error. One tenant gets
// at most half of mostWaiting, and every tenant gets room for at least one entry. WholeServer, for
// callers for all tenants, gets the rest. The queue may exceed the limit by one entry for each
// operation in progress.
func (l *Log) Room(tenant runtime.TenantID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return ErrEnded
	case tenant == WholeServer && len(l.queue) >= mostWaiting:
		return ErrFull
	case tenant == WholeServer:
		return nil
	case l.shares.Acquire(tenant) != nil:
		return ErrFull
	}
	l.shares.Release(tenant) // Append acquires it
	return nil
}

// Append records an entry with an id and the present time. It never blocks. After Run's ctx has ended, it
// calls Config.Unstored with the entry.
func (l *Log) Append(e Entry) {
	e = e.clean()
	if late := l.enqueue(&e); late {
		l.unstored([]Entry{e})
	}
}

// enqueue gives e its time and ID, and adds it to the queue. If the log is closed, it returns true,
// and the caller stores the entry itself.
func (l *Log) enqueue(e *Entry) (late bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.At = l.clock.Now().UTC()
	e.ID = l.ids.id(e.At)
	if l.closed {
		return true
	}
	l.queue = append(l.queue, *e)
	l.shares.Adopt(e.Tenant)
	syncs.Offer(l.wake, struct{}{})
	return false
}

// Problem returns the log's fault, for people, with the number of waiting entries; nil means it works.
func (l *Log) Problem() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := errors.Join(l.problems[:]...)
	if l.problems[storing] == nil || len(l.queue) == 0 {
		return err
	}
	err = fmt.Errorf("%w; %d entries are waiting, the first since %s", err, len(l.queue), l.queue[0].At.Format(time.RFC3339))
	if len(l.queue) >= mostWaiting/2 { // a tenant may have reached its share
		err = fmt.Errorf("%w; until they are stored, operations that must be recorded may be refused", err)
	}
	return err
}

// Flush waits until all entries appended before are stored. It returns an error if an attempt to
// store them fails, and ctx's cause if ctx ends first.
func (l *Log) Flush(ctx context.Context) error {
	l.mu.Lock()
	// Entries are stored in order. Once this many are stored, all earlier ones are.
	target, failures := l.stored+uint64(len(l.queue)), l.failures
	for {
		stored, problem, changed, ended := l.stored >= target, l.problems[storing], l.changed, l.ended
		// An attempt that failed before the call says nothing about these entries.
		if l.failures == failures {
			problem = nil
		}
		l.mu.Unlock()
		switch {
		case stored:
			return nil
		case problem != nil:
			return problem
		case ended:
			return ErrEnded
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		l.mu.Lock()
	}
}

// A Filter selects entries; a zero field selects all. Actor is the id of an actor, or its kind if
// it has none. From and To are precise to the millisecond; To is exclusive.
type Filter = store.AuditFilter

// A Page is a page of the entries that a filter selects.
type Page struct {
	Entries []Entry
	Sizes   []int // of their records, in bytes
	More    bool  // others follow
	Waiting int   // entries of the filter's tenant that aren't stored yet, because the store fails
}

// Entries returns a page of at most first entries after an id, oldest first or, with NewestFirst,
// newest first. It waits up to flushWithin for entries that aren't stored yet, and then counts them
// in Page.Waiting. A page may have fewer entries; see [store.Store.Audit].
func (l *Log) Entries(ctx context.Context, q Filter, first int, after string) (Page, error) {
	var page Page
	flushing, cancel := context.WithTimeout(ctx, flushWithin)
	defer cancel()
	if err := l.Flush(flushing); err != nil {
		if ctx.Err() != nil {
			return Page{}, err
		}
		l.mu.Lock()
		for _, e := range l.queue {
			if q.Tenant == nil || e.Tenant == *q.Tenant {
				page.Waiting++
			}
		}
		l.mu.Unlock()
	}
	q.Actor, q.Action, q.Object = cleanID(q.Actor), cleanWord(q.Action), cleanID(q.Object) // as they are stored
	rows, more, err := l.config.Store.Audit(ctx, q, first, after)
	if err != nil {
		return Page{}, err
	}
	page.More = more
	for _, r := range rows {
		page.Entries, page.Sizes = append(page.Entries, entryOf(r)), append(page.Sizes, len(r.Value))
	}
	return page, nil
}

// Run stores appended entries until ctx ends, and then the rest for at most lastWithin. It returns
// an error with the number of entries that aren't stored. Call it once.
func (l *Log) Run(ctx context.Context) error {
	var group sync.WaitGroup
	if l.config.Keep > 0 {
		group.Go(func() { l.shorten(ctx) })
	}
	if l.lines != nil {
		go l.lines.run() // lines.end waits for it, for a limited time
	}
	err := l.store(ctx)
	if l.lines != nil {
		l.lines.end()
	}
	group.Wait()
	return err
}

// store stores the queue until ctx ends, and then the rest, unless the store fails then. It ends the log.
func (l *Log) store(ctx context.Context) error {
	// When ctx ends, attempts continue for lastWithin.
	attempts, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastWithin, func() { end(errLate) }) })()
	pause := backoff.Backoff{First: firstPause, Last: lastPause}
	for {
		closing := ctx.Err() != nil
		if closing {
			// No entry is added after this, so the loop ends.
			l.close()
		}
		n, err := l.storeSome(attempts)
		l.recordAttempt(n, err)
		switch {
		case n > 0:
			pause.Reset()
		case closing:
			return l.end(err)
		case err != nil:
			_ = pause.Wait(ctx) // if ctx ends, it tries once more
		default:
			select {
			case <-l.wake:
			case <-ctx.Done():
			}
		}
	}
}

// close closes the queue, so that callers that continue don't keep the log from ending.
func (l *Log) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

func (l *Log) storeSome(ctx context.Context) (stored int, err error) {
	l.mu.Lock()
	// Only this goroutine removes entries, so the slice stays valid without the lock.
	some := l.queue[:min(len(l.queue), store.MostAuditRows)]
	l.mu.Unlock()
	if len(some) == 0 {
		return 0, nil
	}
	rows := make([]store.AuditRow, len(some))
	for i, e := range some {
		if rows[i], err = e.row(); err != nil {
			return 0, err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, attemptWithin, errLate)
	defer cancel()
	if err := l.config.Store.AppendAudit(ctx, rows); err != nil {
		return 0, fmt.Errorf("store the audit log: %w", err)
	}
	if l.lines != nil {
		l.lines.add(rows)
	}
	return len(some), nil
}

func (l *Log) recordAttempt(stored int, err error) {
	if stored > 0 || err != nil {
		l.report(storing, err)
		l.mu.Lock()
		defer l.mu.Unlock()
		if err != nil {
			l.failures++
		}
		l.stored += uint64(stored)
		for _, e := range l.queue[:stored] {
			l.shares.Release(e.Tenant)
		}
		if l.queue = l.queue[stored:]; len(l.queue) == 0 {
			l.queue = nil // frees its array, which may be large
		}
		l.change()
	}
}

// end ends the log. If entries can't be stored, for err, it hands them over and returns an error.
func (l *Log) end(err error) error {
	l.mu.Lock()
	l.ended = true
	l.change()
	left := l.queue
	l.mu.Unlock()
	if len(left) == 0 {
		return nil
	}
	if rows := l.unstored(left); l.lines != nil {
		l.lines.add(rows)
	}
	return fmt.Errorf("%d entries of the audit log were not stored: %w", len(left), err)
}

// unstored hands over entries that can't be stored, and returns their rows.
func (l *Log) unstored(entries []Entry) (rows []store.AuditRow) {
	var texts []json.RawMessage
	for _, e := range entries {
		if r, err := e.row(); err == nil { // encoding a clean entry can't fail
			rows, texts = append(rows, r), append(texts, r.Value)
		}
	}
	if l.config.Unstored != nil {
		l.config.Unstored(texts)
	}
	return rows
}

// change wakes everything that waits for a change. The caller holds mu.
func (l *Log) change() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// report records the fault of a part; nil means it works. It calls Failing if that is new.
func (l *Log) report(p part, err error) {
	l.mu.Lock()
	was := l.problems[p]
	l.problems[p] = err
	all := errors.Join(l.problems[:]...)
	l.mu.Unlock()
	if same := (was == nil) == (err == nil) && (err == nil || was.Error() == err.Error()); !same && l.config.Failing != nil {
		l.config.Failing(all)
	}
}
