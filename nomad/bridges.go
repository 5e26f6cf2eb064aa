package nomad

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/bridge"
	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/runtime"
)

// A bridgeSet keeps one agent bridge for each runner. Each bridge is a connection to Nomad, which limits the
// connections of a client. The budget is never exceeded. When the budget is used up, a bridge without streams is
// closed for a new one, the longest unused first. An idle runner's is closed before a claimed
// one's, which is closed only for another claimed runner. If none can be closed, callers wait. Its
// methods are safe for concurrent use.
type bridgeSet struct {
	budget int // maximum number of bridges
	open   func(context.Context, runtime.RunnerID) (bridgeSession, error)
	group  *connection.Group // bridges end with it, and it waits for their goroutines

	opens, failures      atomic.Int64 // of bridges
	streams, openStreams atomic.Int64

	mu    sync.Mutex // guards the fields below, and each link
	all   map[runtime.RunnerID]*link
	short map[runtime.RunnerID]int // number of callers that wait for the budget, by runner
	freed chan struct{}            // closed and replaced when a bridge may be free
}

// BridgeStats are the counts and the current state of all bridges.
type BridgeStats struct {
	Budget      int   // maximum number of bridges
	Open        int   // bridges that are open or being opened
	Waiting     int   // callers that wait for the budget
	Opens       int64 // bridges that were opened
	Failures    int64 // bridges that couldn't be opened
	OpenStreams int64
	Streams     int64 // streams that were opened
}

// Stats returns the counts so far.
func (b *bridgeSet) Stats() BridgeStats {
	s := BridgeStats{Budget: b.budget, Opens: b.opens.Load(), Failures: b.failures.Load(), OpenStreams: b.openStreams.Load(), Streams: b.streams.Load()}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Open = len(b.all)
	for _, callers := range b.short {
		s.Waiting += callers
	}
	return s
}

// A bridgeSession carries streams, as bridge.Client does.
type bridgeSession interface {
	Dial(ctx context.Context) (net.Conn, error)
	Done() <-chan struct{}
	Close() error
}

// newBridgeSet returns a set of at most budget bridges, which end with a group. open opens a bridge to a
// runner's agent, and returns when the agent has answered.
func newBridgeSet(budget int, open func(context.Context, runtime.RunnerID) (bridgeSession, error), with *connection.Group) *bridgeSet {
	return &bridgeSet{
		budget: budget, open: open, group: with,
		all: map[runtime.RunnerID]*link{}, short: map[runtime.RunnerID]int{}, freed: make(chan struct{}),
	}
}

type link struct {
	claimed bool          // a caller named the runner claimed; never reset
	used    time.Time     // when it was opened, or last requested by a caller other than a spare one
	streams int           // open ones
	opened  chan struct{} // closed when session or err is set
	session bridgeSession // nil until the bridge is open
	err     error
	stop    context.CancelFunc // closes the bridge
}

// broken reports whether a link no longer carries streams. The caller holds mu.
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

// errNoSpareBridge says that no bridge is opened for a call with low priority ([runtime.Spare]).
var errNoSpareBridge = errors.New("no spare bridge is available")

// openBridgeWithin bounds the opening of one bridge.
const openBridgeWithin = 5 * time.Second

// Dial opens a stream through a runner's bridge, and opens the bridge if there is none. Callers
// share an attempt and its error. With a ctx of [runtime.Spare] it neither waits for the budget nor
// closes another bridge. Then it returns errNoSpareBridge if the runner has no bridge and a quarter of
// the budget is used.
func (b *bridgeSet) Dial(ctx context.Context, id runtime.RunnerID, claimed bool) (net.Conn, error) {
	br, err := b.get(ctx, id, claimed, 1)
	if err != nil {
		return nil, err
	}
	conn, err := br.session.Dial(ctx)
	if err != nil {
		b.left(br)
		return nil, err
	}
	b.streams.Add(1)
	b.openStreams.Add(1)
	return &stream{Conn: conn, close: sync.OnceValue(func() error {
		b.openStreams.Add(-1)
		defer b.left(br)
		return conn.Close()
	})}, nil
}

type stream struct {
	net.Conn
	close func() error // closes and counts once
}

func (s *stream) Close() error { return s.close() }

// left ends one stream. After the last one the bridge may be closed, so waiting callers try again.
func (b *bridgeSet) left(br *link) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if br.streams--; br.streams == 0 {
		b.signalFreed()
	}
}

// Keep opens a runner's bridge if it has none.
func (b *bridgeSet) Keep(ctx context.Context, id runtime.RunnerID, claimed bool) error {
	_, err := b.get(ctx, id, claimed, 0)
	return err
}

// get returns a runner's bridge, and reserves streams that will be opened.
func (b *bridgeSet) get(ctx context.Context, id runtime.RunnerID, claimed bool, streams int) (*link, error) {
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
			return nil, errNoSpareBridge
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
		// The channel is read under the same lock as the budget, so that no signal between the two
		// is missed.
		freed := b.freed
		if br != nil {
			br.claimed = br.claimed || claimed
			if !spare {
				br.used = time.Now()
			}
			// The streams are reserved under the lock that found the bridge, so room can't close it
			// in between.
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

func (b *bridgeSet) note(id runtime.RunnerID, more int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.short[id] += more; b.short[id] == 0 {
		delete(b.short, id)
	}
}

// Starves reports whether a caller waits for the budget for a runner's bridge.
func (b *bridgeSet) Starves(id runtime.RunnerID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.short[id] > 0
}

// work opens a bridge, and forgets it when it breaks or ctx ends.
func (b *bridgeSet) work(ctx context.Context, id runtime.RunnerID, br *link) {
	opening, cancel := context.WithTimeout(ctx, openBridgeWithin)
	s, err := b.open(opening, id)
	cancel()
	if err != nil {
		b.failures.Add(1)
	} else {
		b.opens.Add(1)
	}
	b.mu.Lock()
	br.session, br.err = s, err
	close(br.opened)
	b.signalFreed() // it has no stream yet, so it may be closed for another bridge
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
	// Another bridge of the runner may have taken its place.
	if b.all[id] == br {
		delete(b.all, id)
	}
	b.signalFreed()
}

// room closes a bridge if necessary, and reports whether another may be opened. The caller holds mu.
func (b *bridgeSet) room(claimed bool) bool {
	if len(b.all) < b.budget {
		return true
	}
	var victim runtime.RunnerID
	var worst *link
	for id, br := range b.all {
		// A bridge with streams, or one that is being opened, is in use. A claimed runner's is
		// never closed for an idle one's.
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

// signalFreed makes the callers that wait for the budget try again. The caller holds mu.
func (b *bridgeSet) signalFreed() {
	close(b.freed)
	b.freed = make(chan struct{})
}

// Drop closes a runner's bridge.
func (b *bridgeSet) Drop(id runtime.RunnerID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if br := b.all[id]; br != nil {
		delete(b.all, id)
		br.stop()
	}
	b.signalFreed()
}

// execBridge starts the agent's bridge in a task of an allocation by alloc exec, and returns when the agent
// has answered through it. The node may be unknown.
func execBridge(ctx context.Context, nomad *connection.Client, node, allocation string, access job.AgentAccess) (bridgeSession, error) {
	conn, err := nomad.Exec(ctx, node, allocation, access.Task, access.Command)
	if err != nil {
		return nil, err
	}
	s, err := bridge.NewClient(conn)
	if err != nil {
		return nil, err
	}
	// The exec starts even if no agent listens yet. Only an answer shows that the agent is ready.
	stream, err := s.Dial(ctx)
	if err == nil {
		_, err = agent.PingAgent(ctx, stream)
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}
