// Package bridges keeps one agent bridge per runner, within a budget: each is a connection
// to Nomad, which allows a client only so many.
package bridges

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/nomad/group"
	"github.com/rockpool/rockpool/runtime"
)

// A Set is the bridges of all runners. Where the budget has no room, one that carries
// nothing makes room: of an idle runner first, and of a claimed one only for a claimed
// one; the longest unused at first. Where none can go, callers wait. Its methods may be
// called at once.
type Set struct {
	budget int
	open   Open
	group  *group.Group // bridges end with it
	counts counts

	mu    sync.Mutex // guards what follows
	all   map[runtime.RunnerID]*link
	short map[runtime.RunnerID]int // how many wait for room for a runner's
	freed chan struct{}            // closed, and made anew, when there may be room
}

// Open opens a bridge to a runner's agent, and returns when the agent has answered.
type Open func(context.Context, runtime.RunnerID) (Session, error)

// counts count what a set did.
type counts struct {
	opens, failures      atomic.Int64 // of bridges
	streams, openStreams atomic.Int64
}

func (c *counts) opened(err error) {
	if err != nil {
		c.failures.Add(1)
	} else {
		c.opens.Add(1)
	}
}

// Stats are what a Set has done, and what it has now.
type Stats struct {
	Budget      int   // bridges that there may be
	Open        int   // bridges that there are, those that are being opened included
	Waiting     int   // callers that wait for room
	Opens       int64 // bridges that were opened
	Failures    int64 // bridges that could not be
	OpenStreams int64
	Streams     int64 // that were opened
}

// Stats returns what was counted until now.
func (b *Set) Stats() Stats {
	c := &b.counts
	s := Stats{Budget: b.budget, Opens: c.opens.Load(), Failures: c.failures.Load(), OpenStreams: c.openStreams.Load(), Streams: c.streams.Load()}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Open = len(b.all)
	for _, callers := range b.short {
		s.Waiting += callers
	}
	return s
}

// A Session carries streams. bridge.Client is one.
type Session interface {
	Dial(ctx context.Context) (net.Conn, error)
	Done() <-chan struct{}
	Close() error
}

// NewSet returns a set of as many bridges as the budget allows, which end with a group.
func NewSet(budget int, open Open, with *group.Group) *Set {
	return &Set{
		budget: budget, open: open, group: with,
		all: map[runtime.RunnerID]*link{}, short: map[runtime.RunnerID]int{}, freed: make(chan struct{}),
	}
}

// A link is one runner's bridge's, open or being opened.
type link struct {
	claimed bool
	used    time.Time
	streams int           // that it carries
	opened  chan struct{} // closed when session or err is there
	session Session
	err     error
	stop    context.CancelFunc // ends it
}

// broken reports whether a link doesn't carry any more. The caller holds mu.
func (l *link) broken() bool {
	if l.session == nil {
		return l.err != nil
	}
	select {
	case <-l.session.Done():
		return true
	default:
		return false
	}
}

// ErrNoneSpare says that no bridge is opened for what others must not notice.
var ErrNoneSpare = errors.New("no bridge is spare")

// OpenWithin bounds the opening of one bridge.
const OpenWithin = 5 * time.Second

// Dial opens a stream through a runner's bridge, which it opens where there is
// none. An error may be that of an attempt that another caller shared. With a ctx of [runtime.Spare]
// it neither waits for room nor makes it: it returns ErrNoneSpare where the runner has no bridge and a
// quarter of the budget is used.
func (b *Set) Dial(ctx context.Context, id runtime.RunnerID, claimed bool) (net.Conn, error) {
	br, err := b.get(ctx, id, claimed, 1)
	if err != nil {
		return nil, err
	}
	conn, err := br.session.Dial(ctx)
	if err != nil {
		b.left(br)
		return nil, err
	}
	b.counts.streams.Add(1)
	b.counts.openStreams.Add(1)
	return &stream{Conn: conn, close: sync.OnceValue(func() error {
		b.counts.openStreams.Add(-1)
		defer b.left(br)
		return conn.Close()
	})}, nil
}

// A stream is counted until it is closed.
type stream struct {
	net.Conn
	close func() error
}

func (s *stream) Close() error { return s.close() }

func (b *Set) left(br *link) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if br.streams--; br.streams == 0 {
		b.signalFreed()
	}
}

// Keep opens a runner's bridge, if it has none.
func (b *Set) Keep(ctx context.Context, id runtime.RunnerID, claimed bool) error {
	_, err := b.get(ctx, id, claimed, 0)
	return err
}

// get returns a runner's bridge, and counts streams that are to be opened.
func (b *Set) get(ctx context.Context, id runtime.RunnerID, claimed bool, streams int) (*link, error) {
	ctx, release := b.group.Bind(ctx)
	defer release()
	waiting, spare := false, runtime.IsSpare(ctx)
	defer func() {
		if waiting {
			b.note(id, -1)
		}
	}()
	for {
		b.mu.Lock()
		br := b.all[id]
		if br != nil && br.broken() {
			delete(b.all, id)
			br = nil
		}
		if br == nil && spare && len(b.all) >= b.budget/4 {
			b.mu.Unlock()
			return nil, ErrNoneSpare
		}
		if br == nil && b.room(claimed) {
			br = &link{opened: make(chan struct{}), used: time.Now()}
			stop, ok := b.group.Go(func(ctx context.Context) { b.work(ctx, id, br) })
			if !ok {
				b.mu.Unlock()
				return nil, b.group.Cause()
			}
			br.stop = stop
			b.all[id] = br
		}
		freed := b.freed
		if br != nil {
			br.claimed = br.claimed || claimed
			if !spare {
				br.used = time.Now()
			}
			br.streams += streams
		}
		b.mu.Unlock()
		if br == nil {
			if !waiting {
				waiting = true
				b.note(id, 1)
			}
			select {
			case <-freed:
				continue
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		select {
		case <-br.opened:
			if br.err != nil {
				return nil, br.err
			}
			return br, nil
		case <-ctx.Done():
			for range streams {
				b.left(br)
			}
			return nil, context.Cause(ctx)
		}
	}
}

// note counts one more caller, or one fewer, that waits for room for a runner's bridge.
func (b *Set) note(id runtime.RunnerID, more int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.short[id] += more; b.short[id] == 0 {
		delete(b.short, id)
	}
}

// Starves reports whether a caller waits for room for a runner's bridge.
func (b *Set) Starves(id runtime.RunnerID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.short[id] > 0
}

// work opens a bridge, and forgets it when it breaks or ctx ends.
func (b *Set) work(ctx context.Context, id runtime.RunnerID, br *link) {
	opening, cancel := context.WithTimeout(ctx, OpenWithin)
	s, err := b.open(opening, id)
	cancel()
	b.counts.opened(err)
	b.mu.Lock()
	br.session, br.err = s, err
	close(br.opened)
	b.signalFreed() // it carries nothing yet, so it may go for another
	b.mu.Unlock()
	if err == nil {
		select {
		case <-s.Done():
		case <-ctx.Done():
		}
		_ = s.Close()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all[id] == br {
		delete(b.all, id)
	}
	b.signalFreed()
}

// room makes room for one more, and reports whether there is. The caller holds
// mu.
func (b *Set) room(claimed bool) bool {
	if len(b.all) < b.budget {
		return true
	}
	var victim runtime.RunnerID
	var worst *link
	for id, br := range b.all {
		if br.session == nil || br.streams > 0 || br.claimed && !claimed {
			continue
		}
		if worst == nil || worst.claimed && !br.claimed || worst.claimed == br.claimed && br.used.Before(worst.used) {
			victim, worst = id, br
		}
	}
	if worst == nil {
		return false
	}
	delete(b.all, victim)
	worst.stop()
	return true
}

// signalFreed has the callers that wait for room try again. The caller holds mu.
func (b *Set) signalFreed() {
	close(b.freed)
	b.freed = make(chan struct{})
}

// Drop closes a runner's bridge.
func (b *Set) Drop(id runtime.RunnerID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if br := b.all[id]; br != nil {
		delete(b.all, id)
		br.stop()
	}
	b.signalFreed()
}
