// Package peering lets several servers of one cluster serve as one. One of them leads. The others pass
// each connection on to it, byte by byte, so that every request, stream and subscription is answered as
// if it had come there (docs/decisions/0044).
package peering

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/rockpool/rockpool/graph/transport/socket"
)

// A Leader is where the server that leads takes what others pass on. The zero Leader is none, or the server
// itself.
type Leader struct {
	Address string
	Secret  string // that only servers of the cluster know
}

// How a leader is reached, and when a connection isn't kept any more.
const (
	dialWithin = time.Second
	checkEvery = 200 * time.Millisecond
	keptFor    = 6 * time.Second // without a leader that can be reached: long enough for an answer that says so
	closeAfter = time.Second     // for the end of one direction to reach the other
)

// A Passing is a listener that passes connections on to the leader. It returns those that no leader takes: this
// server answers them itself. Close it.
type Passing struct {
	of     net.Listener
	leader func() Leader
	own    chan net.Conn // for this server
	slots  chan struct{} // of connections that are passed on
	closed chan struct{} // closed by Close
	close  sync.Once
	failed chan struct{} // closed when of failed; err says why
	err    error

	mu     sync.Mutex // guards what follows
	kept   map[*kept]struct{}
	passed map[*pair]Leader
}

// A pair is a connection of a client's, and the one to the leader that it is passed on by.
type pair struct{ client, leader net.Conn }

func (p *pair) close() {
	_ = p.client.Close()
	_ = p.leader.Close()
}

// Pass returns a listener of the connections of another one. It passes at most so many on at once, and closes
// further ones. Leader is asked at each connection, and five times a second.
func Pass(of net.Listener, most int, leader func() Leader) *Passing {
	p := &Passing{
		of: of, leader: leader, own: make(chan net.Conn), slots: make(chan struct{}, most),
		closed: make(chan struct{}), failed: make(chan struct{}), kept: map[*kept]struct{}{}, passed: map[*pair]Leader{},
	}
	go p.accept() // both end with the listener
	go p.check()
	return p
}

// Accept implements net.Listener.
func (p *Passing) Accept() (net.Conn, error) {
	select {
	case conn := <-p.own:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-p.failed:
		return nil, p.err
	}
}

// Addr implements net.Listener.
func (p *Passing) Addr() net.Addr { return p.of.Addr() }

// Close ends the listener at once, and a second later the connections that it passes on.
func (p *Passing) Close() (err error) {
	p.close.Do(func() {
		close(p.closed)
		err = p.of.Close()
		time.AfterFunc(closeAfter, func() { p.closePairs(func(Leader) bool { return true }) })
	})
	return err
}

func (p *Passing) accept() {
	for {
		conn, err := p.of.Accept()
		if passes(err) {
			<-time.After(checkEvery)
			continue
		}
		if err != nil {
			p.err = err
			close(p.failed)
			return
		}
		go p.pass(conn)
	}
}

// passes reports whether an error says nothing of a listener, as net/http asks for it: no descriptor was free, for
// example.
func passes(err error) bool {
	var temporary interface{ Temporary() bool }
	return errors.As(err, &temporary) && temporary.Temporary()
}

// pass passes a connection on until either side ends it, or leaves it to this server.
func (p *Passing) pass(conn net.Conn) {
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
	k := &kept{Conn: conn, of: p, since: time.Now()}
	p.mu.Lock()
	p.kept[k] = struct{}{}
	p.mu.Unlock()
	select {
	case p.own <- k:
	case <-p.closed:
		_ = k.Close()
	case <-p.failed:
		_ = k.Close()
	}
}

// dial connects to the leader, and says whose connection follows.
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

// join copies both ways. The client may end its direction, and wait for the rest. Where the leader ends its own, the
// connection is over: a client that doesn't notice is cut off.
func (p *Passing) join(j *pair, leader Leader) {
	p.mu.Lock()
	p.passed[j] = leader
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.passed, j)
		p.mu.Unlock()
	}()
	upward := make(chan struct{})
	go func() {
		defer close(upward)
		if _, err := io.Copy(j.leader, j.client); err != nil || closeWrite(j.leader) != nil {
			j.close()
		}
	}()
	_, _ = io.Copy(j.client, j.leader) // with the client's own patience
	_ = closeWrite(j.client)
	select {
	case <-upward:
	case <-time.After(closeAfter):
	}
	j.close()
	<-upward
}

func closeWrite(conn net.Conn) error {
	closer, ok := socket.Within[interface{ CloseWrite() error }](conn)
	if !ok {
		return nil
	}
	return closer.CloseWrite()
}

// A kept is a connection that this server answers for want of a leader.
type kept struct {
	net.Conn
	of    *Passing
	since time.Time
}

// Unwrap returns the connection itself; see package socket.
func (k *kept) Unwrap() net.Conn { return k.Conn }

// Close closes the connection.
func (k *kept) Close() error {
	k.of.mu.Lock()
	delete(k.of.kept, k)
	k.of.mu.Unlock()
	return k.Conn.Close()
}

// check ends connections whose clients should connect again: those that this server answered for want of a leader,
// once there is one, and those to a leader that isn't it any more.
func (p *Passing) check() {
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
		p.closePairs(func(to Leader) bool { return to != now })
		known = now
	}
}

// closeKept closes the connections that are kept, those that are too old or all.
func (p *Passing) closeKept(all bool) {
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

// closePairs closes the connections that are passed on to some leaders.
func (p *Passing) closePairs(which func(Leader) bool) {
	var over []*pair
	p.mu.Lock()
	for j, to := range p.passed {
		if which(to) {
			over = append(over, j)
		}
	}
	p.mu.Unlock()
	for _, j := range over {
		j.close()
	}
}
