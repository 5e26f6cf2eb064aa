package nomad

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// bridges keeps one bridge per runner, and no more of them than the budget:
// each is a connection to Nomad, which allows a client only so many. Where there
// is no room, one that carries nothing goes: of an idle runner first, and of
// a claimed one only for a claimed one; the longest unused at first. Where none
// can go, whoever needs one waits.
type bridges struct {
	budget int
	open   func(context.Context, runtime.RunnerID) (session, error)

	life    context.Context // of the goroutines that no caller waits for
	end     context.CancelFunc
	workers sync.WaitGroup

	mu    sync.Mutex // guards what follows
	all   map[runtime.RunnerID]*link
	short map[runtime.RunnerID]int // how many wait for room for a runner's
	freed chan struct{}            // closed, and made anew, when there may be room
}

// A session carries streams. bridge.Client is one.
type session interface {
	Dial(ctx context.Context) (net.Conn, error)
	Done() <-chan struct{}
	Close() error
}

// A link is one runner's bridge's, open or being opened.
type link struct {
	claimed bool
	used    time.Time
	streams int           // that it carries
	opened  chan struct{} // closed when session or err is there
	session session
	err     error
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

func newBridges(budget int, open func(context.Context, runtime.RunnerID) (session, error)) *bridges {
	b := &bridges{budget: budget, open: open, all: map[runtime.RunnerID]*link{}, short: map[runtime.RunnerID]int{}, freed: make(chan struct{})}
	b.life, b.end = context.WithCancel(context.Background())
	return b
}

// openWithin bounds the opening of one bridge.
const openWithin = 5 * time.Second

// dial opens a stream through a runner's bridge, which it opens where there is
// none. An error may be that of an attempt that another caller shared.
func (b *bridges) dial(ctx context.Context, id runtime.RunnerID, claimed bool) (net.Conn, error) {
	br, err := b.get(ctx, id, claimed, 1)
	if err != nil {
		return nil, err
	}
	conn, err := br.session.Dial(ctx)
	if err != nil {
		b.left(br)
		return nil, err
	}
	return &stream{Conn: conn, close: sync.OnceValue(func() error {
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

func (b *bridges) left(br *link) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if br.streams--; br.streams == 0 {
		b.tellFreed()
	}
}

// keep opens a runner's bridge, if it has none.
func (b *bridges) keep(ctx context.Context, id runtime.RunnerID, claimed bool) error {
	_, err := b.get(ctx, id, claimed, 0)
	return err
}

// get returns a runner's bridge, and counts streams that are to be opened.
func (b *bridges) get(ctx context.Context, id runtime.RunnerID, claimed bool, streams int) (*link, error) {
	waiting := false
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
		if br == nil && b.life.Err() == nil && b.room(claimed) {
			br = &link{opened: make(chan struct{})}
			b.all[id] = br
			b.workers.Go(func() { b.work(id, br) })
		}
		freed := b.freed
		if br != nil {
			br.claimed = br.claimed || claimed
			br.used = time.Now()
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
			case <-b.life.Done():
				return nil, errStopping()
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

// note counts one more, or one fewer, who waits for room for a runner's bridge.
func (b *bridges) note(id runtime.RunnerID, more int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.short[id] += more; b.short[id] == 0 {
		delete(b.short, id)
	}
}

// starves reports whether somebody waits for room for a runner's bridge.
func (b *bridges) starves(id runtime.RunnerID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.short[id] > 0
}

// work opens a bridge, and forgets it when it breaks.
func (b *bridges) work(id runtime.RunnerID, br *link) {
	ctx, cancel := context.WithTimeout(b.life, openWithin)
	s, err := b.open(ctx, id)
	cancel()
	b.mu.Lock()
	br.session, br.err = s, err
	close(br.opened)
	b.tellFreed() // it carries nothing yet, so it may go for another
	b.mu.Unlock()
	if err == nil {
		select {
		case <-s.Done():
		case <-b.life.Done():
		}
		_ = s.Close()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all[id] == br {
		delete(b.all, id)
	}
	b.tellFreed()
}

// room makes room for one more, and reports whether there is. The caller holds
// mu.
func (b *bridges) room(claimed bool) bool {
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
	b.workers.Go(func() { _ = worst.session.Close() }) // which waits for the network
	return true
}

// tellFreed has those who wait look again. The caller holds mu.
func (b *bridges) tellFreed() {
	close(b.freed)
	b.freed = make(chan struct{})
}

// drop closes a runner's bridge.
func (b *bridges) drop(id runtime.RunnerID) {
	b.mu.Lock()
	br := b.all[id]
	delete(b.all, id)
	b.tellFreed()
	b.mu.Unlock()
	if br == nil {
		return
	}
	b.workers.Go(func() { // it may still be being opened
		<-br.opened
		if br.session != nil {
			_ = br.session.Close()
		}
	})
}

// close closes all, and waits for their ends.
func (b *bridges) close() {
	b.end()
	b.workers.Wait()
}
