package connections

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/rockpool/rockpool/clients"
)

// A Leader is the address at which the leading server receives forwarded connections. The zero
// Leader means that there is no leader, or that this server leads.
type Leader struct {
	Address string
	Secret  string // known only to servers of the cluster
}

// Timeouts.
const (
	dialWithin = time.Second
	checkEvery = 200 * time.Millisecond
	keptFor    = 6 * time.Second // without a reachable leader: long enough for a response that says so
	closeAfter = time.Second     // for the end of one direction to reach the other side
)

// A Forwarder is a listener that forwards connections to the leader. Accept returns only
// connections that this server must serve itself: without a reachable leader, or because it leads.
// The caller must call Close.
type Forwarder struct {
	handoff
	leader func() Leader
	slots  chan struct{} // one for each forwarded connection

	mu        sync.Mutex // guards the fields below
	kept      map[*kept]struct{}
	forwarded map[*pair]Leader
}

// A pair is a client's connection and the connection to the leader that forwards it.
type pair struct{ client, leader net.Conn }

// close closes both connections. Further calls do nothing.
func (p *pair) close() {
	_ = p.client.Close()
	_ = p.leader.Close()
}

// Forward returns a listener that forwards the connections of another one. It forwards at most most
// connections concurrently and closes further ones. It calls leader for each connection, and five
// times a second.
func Forward(of net.Listener, most int, leader func() Leader) *Forwarder {
	p := &Forwarder{handoff: newHandoff(of), leader: leader, slots: make(chan struct{}, most), kept: map[*kept]struct{}{}, forwarded: map[*pair]Leader{}}
	// Both goroutines end with the listener. Each connection has a goroutine, since forward blocks
	// until the connection ends.
	go p.accept(func(conn net.Conn) { go p.forward(conn) })
	go p.check()
	return p
}

// Close ends the listener immediately, and forwarded connections after a second.
func (p *Forwarder) Close() (err error) {
	p.once.Do(func() {
		close(p.closed)
		err = p.of.Close()
		time.AfterFunc(closeAfter, func() { p.closePairs(func(Leader) bool { return true }) })
	})
	return err
}

// forward forwards a connection until either side ends it, or hands it to this server.
func (p *Forwarder) forward(conn net.Conn) {
	if leader := p.leader(); leader.Address != "" {
		select {
		case p.slots <- struct{}{}:
			defer func() { <-p.slots }()
		default:
			_ = conn.Close()
			return
		}
		if there, err := dial(leader, conn.RemoteAddr()); err == nil {
			p.join(&pair{conn, there}, leader)
			return
		}
	}
	// Register the connection before Accept returns it, so that check can close it when there is a
	// leader.
	k := &kept{Conn: conn, of: p, since: time.Now()}
	p.mu.Lock()
	p.kept[k] = struct{}{}
	p.mu.Unlock()
	p.hand(k)
}

// dial connects to the leader and sends the client's address.
func dial(leader Leader, client net.Addr) (net.Conn, error) {
	conn, err := connect(context.Background(), leader.Address)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(conn, "%s %s %s\n", greeting, leader.Secret, client); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// join copies in both directions. The client may end its direction and read the rest. When the
// leader ends its direction, join closes the connection after a second, even if the client doesn't.
func (p *Forwarder) join(j *pair, leader Leader) {
	p.mu.Lock()
	p.forwarded[j] = leader
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.forwarded, j)
		p.mu.Unlock()
	}()
	upward := make(chan struct{})
	go func() {
		defer close(upward)
		if _, err := io.Copy(j.leader, j.client); err != nil || closeWrite(j.leader) != nil {
			j.close()
		}
	}()
	_, _ = io.Copy(j.client, j.leader) // writes have the deadlines of the client's connection
	_ = closeWrite(j.client)
	select {
	case <-upward:
	case <-time.After(closeAfter):
	}
	j.close()
	// close has unblocked the goroutine. It ends before the connection's slot is free.
	<-upward
}

// closeWrite ends the direction to the other side. It does nothing if neither conn nor a connection
// within it has CloseWrite.
func closeWrite(conn net.Conn) error {
	closer, ok := clients.Within[interface{ CloseWrite() error }](conn)
	if !ok {
		return nil
	}
	return closer.CloseWrite()
}

// A kept is a connection that this server serves because no leader was reachable.
type kept struct {
	net.Conn
	of    *Forwarder
	since time.Time
}

// Unwrap returns the underlying connection; see [clients.Within].
func (k *kept) Unwrap() net.Conn { return k.Conn }

func (k *kept) Close() error {
	k.of.mu.Lock()
	delete(k.of.kept, k)
	k.of.mu.Unlock()
	return k.Conn.Close()
}

// check ends connections whose clients should reconnect: connections that this server kept without
// a leader, when there is one; and connections to a former leader.
func (p *Forwarder) check() {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	known := Leader{}
	for {
		select {
		case <-tick.C:
		case <-p.closed:
			return
		case <-p.failed:
			return
		}
		now := p.leader()
		if now.Address != "" {
			p.closeKept(now != known)
		}
		// Without a leader, now is zero, and every forwarded connection ends.
		p.closePairs(func(to Leader) bool { return to != now })
		known = now
	}
}

// closeKept closes kept connections: all, or only those older than keptFor.
func (p *Forwarder) closeKept(all bool) {
	var over []*kept
	p.mu.Lock()
	for k := range p.kept {
		if all || time.Since(k.since) > keptFor {
			over = append(over, k)
		}
	}
	p.mu.Unlock()
	for _, k := range over {
		_ = k.Close()
	}
}

// closePairs closes the forwarded connections to the leaders that which selects.
func (p *Forwarder) closePairs(which func(Leader) bool) {
	var over []*pair
	p.mu.Lock()
	for j, to := range p.forwarded {
		if which(to) {
			over = append(over, j)
		}
	}
	p.mu.Unlock()
	for _, j := range over {
		j.close()
	}
}

// A handoff is a listener that returns only some of another listener's connections.
type handoff struct {
	of     net.Listener
	conns  chan net.Conn
	once   sync.Once     // for Close
	closed chan struct{} // closed by Close
	failed chan struct{} // closed when of has failed; err is then set
	err    error
}

func newHandoff(of net.Listener) handoff {
	return handoff{of: of, conns: make(chan net.Conn), closed: make(chan struct{}), failed: make(chan struct{})}
}

func (h *handoff) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.closed:
		return nil, net.ErrClosed
	case <-h.failed:
		return nil, h.err
	}
}

func (h *handoff) Addr() net.Addr { return h.of.Addr() }

// accept calls handle for each connection until the other listener fails.
func (h *handoff) accept(handle func(conn net.Conn)) {
	for {
		conn, err := h.of.Accept()
		if isTemporary(err) {
			<-time.After(checkEvery)
			continue
		}
		if err != nil {
			h.err = err
			close(h.failed)
			return
		}
		handle(conn)
	}
}

// isTemporary reports whether an error doesn't mean that the listener is broken, for example without
// a free descriptor. net/http checks it in the same way.
func isTemporary(err error) bool {
	var temporary interface{ Temporary() bool }
	return errors.As(err, &temporary) && temporary.Temporary()
}

// hand makes Accept return a connection. It closes the connection if the listener ends before.
func (h *handoff) hand(conn net.Conn) {
	select {
	case h.conns <- conn:
	case <-h.closed:
		_ = conn.Close()
	case <-h.failed:
		_ = conn.Close()
	}
}
