// Package audit records who did what to which object, from where, and with which outcome. A [Log] is append-only:
// entries never change. Only entries older than [Config.Keep] are deleted.
//
// Entries are written behind their callers: Append puts an entry in a queue, and one goroutine stores what waits there,
// within milliseconds. While the store can't take them, entries wait: see [Log.Problem]. When too many wait, [Log.Room]
// refuses what would make another. A server that is killed (SIGKILL, a power cut) loses the entries that wait. One that
// stops stores them, and hands those that it can't store to [Config.Unstored].
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
	"github.com/rockpool/rockpool/runtime/share"
	"github.com/rockpool/rockpool/runtime/store"
)

// mostWaiting is how many entries wait in memory, of about 500 bytes each, before Room refuses more. One tenant alone
// has half of them.
const mostWaiting = 100_000

const (
	firstPause = 20 * time.Millisecond // before the next attempt to store entries
	lastPause  = time.Second

	attemptWithin = 5 * time.Second // then an attempt to store entries has failed: the database stalls, or is away
	lastWithin    = 2 * time.Second // for so long the end of a log tries to store what waits
	flushWithin   = 2 * time.Second // for so long a query waits for entries that aren't stored yet
)

// Store is where entries are. [store.Store] implements it.
type Store interface {
	// AppendAudit may be called again with the same rows. It returns when ctx ends.
	AppendAudit(ctx context.Context, rows []store.AuditRow) error
	Audit(ctx context.Context, q store.AuditFilter, first int, after string, charge func(bytes int) error) ([]store.AuditRow, bool, error)
	DeleteAudit(ctx context.Context, before time.Time, most int) (deleted int, err error)
}

// Config is what a [Log] is made of.
type Config struct {
	Store  Store
	Keep   time.Duration // for how long an entry is kept; 0: for ever
	Lines  string        // path of a file to which entries are appended as JSON, or "-": Stdout; "": none
	Stdout io.Writer

	// Failing is called when a part of the log begins to fail or fails for another reason, and with nil when all parts
	// work again. The log tries again meanwhile. May be nil.
	Failing func(error)

	// Unstored is called with the entries that aren't stored when the log ends, as JSON. Those that waited then are in
	// Lines, too, if that can be written. May be nil.
	Unstored func(entries []json.RawMessage)
}

// A Log is an audit log. Its methods are safe for concurrent use.
type Log struct {
	config Config
	lines  *lines // nil: none
	wake   chan struct{}

	refusals refusals

	mu       sync.Mutex // guards what follows
	queue    []Entry
	shares   share.Bound // of the queue
	clock    clock
	stored   uint64        // how many entries are stored
	failures uint64        // how many attempts to store entries have failed
	changed  chan struct{} // closed when stored, failures or ended change
	closed   bool          // the queue takes nothing more
	ended    bool          // nor is anything stored
	problems [parts]error
}

// A part of a log can fail.
type part int

const (
	storing part = iota
	deleting
	copying
	parts
)

var (
	// ErrEnded says that the log has ended.
	ErrEnded error = runtime.Errorf(runtime.CodeClusterUnavailable, "the server stops")
	// ErrFull says that too many entries wait to be stored.
	ErrFull error = runtime.Errorf(runtime.CodeClusterUnavailable, "the audit log is full: %d entries may wait until the database stores them, of one tenant alone half. Operations that must be recorded are refused until then; `health` says why", mostWaiting)

	errLate = errors.New("the database doesn't answer")
)

// New returns a log, and an error if Lines can't be opened. Call Run.
func New(c Config) (*Log, error) {
	l := &Log{config: c, wake: make(chan struct{}, 1), changed: make(chan struct{}), shares: share.Bound{Limit: mostWaiting}}
	if c.Lines == "" {
		return l, nil
	}
	var err error
	if l.lines, err = newLines(c.Lines, c.Stdout, func(err error) { l.report(copying, err) }); err != nil {
		return nil, fmt.Errorf("copy the audit log to %s: %w", c.Lines, err)
	}
	return l, nil
}

// Room returns why the log takes no more entries of a tenant: ErrFull or ErrEnded; nil: it does. Call it before an
// operation that makes an entry, and fail that operation instead. A tenant alone has half of mostWaiting, and each
// one has room for an entry; WholeServer, for callers for all tenants, has what is left. The log may have more entries: one for each
// operation that was under way.
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
	l.shares.Release(tenant) // Append takes it
	return nil
}

// Append records an entry, with an id and the time of now. It waits for nothing. Once Run's ctx has ended, it calls
// Config.Unstored with the entry.
func (l *Log) Append(e Entry) {
	e = e.clean()
	if late := l.enqueue(&e); late {
		l.unstored([]Entry{e})
	}
}

func (l *Log) enqueue(e *Entry) (late bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.At = time.Now().UTC()
	e.ID = l.clock.id(e.At)
	if l.closed {
		return true
	}
	l.queue = append(l.queue, *e)
	l.shares.Adopt(e.Tenant)
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return false
}

// Problem returns what is wrong with the log, for people, and how many entries wait; nil: nothing.
func (l *Log) Problem() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := errors.Join(l.problems[:]...)
	if l.problems[storing] == nil || len(l.queue) == 0 {
		return err
	}
	err = fmt.Errorf("%w; %d entries wait, the first since %s", err, len(l.queue), l.queue[0].At.Format(time.RFC3339))
	if len(l.queue) >= mostWaiting/2 { // a tenant may have its share
		err = fmt.Errorf("%w; until they are stored, operations that make another may be refused", err)
	}
	return err
}

// Flush waits until the entries that were appended before are stored. It returns an error if an attempt to store them
// fails, and ctx's cause if ctx ends first.
func (l *Log) Flush(ctx context.Context) error {
	l.mu.Lock()
	target, failures := l.stored+uint64(len(l.queue)), l.failures
	for {
		stored, problem, changed, ended := l.stored >= target, l.problems[storing], l.changed, l.ended
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

// A Filter selects entries; a zero field selects all. Actor is the id of an actor, or its kind if it has no id. From and
// To have the precision of a millisecond; To is exclusive.
type Filter = store.AuditFilter

// A Page is a part of the entries that a filter selects.
type Page struct {
	Entries []Entry
	More    bool // there are further ones
	Waiting int  // how many entries of the filter's tenant aren't in the log yet, since they can't be stored now
}

// Entries returns a page of the entries after an id: at most first of them, the oldest first, or the newest with
// NewestFirst. It waits up to flushWithin for entries that aren't stored yet, and then counts them in Page.Waiting. It
// calls charge with the size of each entry in bytes. An error of charge ends the page; Entries returns it only if the page
// is empty.
func (l *Log) Entries(ctx context.Context, q Filter, first int, after string, charge func(bytes int) error) (Page, error) {
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
	rows, more, err := l.config.Store.Audit(ctx, q, first, after, charge)
	if err != nil {
		return Page{}, err
	}
	page.More = more
	for _, r := range rows {
		page.Entries = append(page.Entries, entryOf(r))
	}
	return page, nil
}

// Run stores what is appended until ctx ends, and then the rest, for at most lastWithin. An error says how many entries
// aren't stored. Call it once.
func (l *Log) Run(ctx context.Context) error {
	var group sync.WaitGroup
	if l.config.Keep > 0 {
		group.Go(func() { l.shorten(ctx) })
	}
	if l.lines != nil {
		go l.lines.run() // see lines.end
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
	attempts, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastWithin, func() { end(errLate) }) })()
	pause := backoff.Backoff{First: firstPause, Last: lastPause}
	for {
		closing := ctx.Err() != nil
		if closing {
			l.close()
		}
		n, err := l.storeSome(attempts)
		l.stood(n, err)
		switch {
		case n > 0:
			pause.Reset()
		case closing:
			return l.end(err)
		case err != nil:
			_ = pause.Wait(ctx) // and it tries once more if ctx ends
		default:
			select {
			case <-l.wake:
			case <-ctx.Done():
			}
		}
	}
}

// close closes the queue, so that callers that go on don't keep the log from ending.
func (l *Log) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// storeSome stores the first entries of the queue.
func (l *Log) storeSome(ctx context.Context) (stored int, err error) {
	l.mu.Lock()
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

// stood takes in the result of an attempt.
func (l *Log) stood(stored int, err error) {
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

// end ends the log. It returns an error if the queue has entries that can't be stored, for err, and hands those over.
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
	return fmt.Errorf("%d entries of the audit log can't be stored: %w", len(left), err)
}

// unstored hands over entries that can't be stored, and returns them.
func (l *Log) unstored(entries []Entry) (rows []store.AuditRow) {
	var texts []json.RawMessage
	for _, e := range entries {
		if r, err := e.row(); err == nil { // there is nothing in it that can fail
			rows, texts = append(rows, r), append(texts, r.Value)
		}
	}
	if l.config.Unstored != nil {
		l.config.Unstored(texts)
	}
	return rows
}

// change wakes all that wait for a change. The caller holds mu.
func (l *Log) change() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// report takes in what is wrong with a part; nil: nothing. It calls Failing if that is new.
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
