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

// How a leader is reached, and looked for.
const (
	dialWithin = time.Second
	lookEvery  = 200 * time.Millisecond
)

// A Passing is a listener that passes connections on to the leader. It returns those that no leader takes: this
// server answers them itself. Close it.
type Passing struct {
	of     net.Listener
	leader func() Leader
	own    chan net.Conn // for this server
	slots  chan struct{} // of connections that are passed on
	failed chan struct{} // closed when of is; err says why
	err    error
	ended  context.Context
	end    context.CancelFunc
	group  sync.WaitGroup

	mu   sync.Mutex // guards kept
	kept map[*kept]struct{}
}

// Pass returns a listener of the connections of another one. It passes at most so many on at once, and closes
// further ones. Leader is asked at each connection.
func Pass(of net.Listener, most int, leader func() Leader) *Passing {
	p := &Passing{of: of, leader: leader, own: make(chan net.Conn), slots: make(chan struct{}, most), failed: make(chan struct{}), kept: map[*kept]struct{}{}}
	p.ended, p.end = context.WithCancel(context.Background())
	p.group.Go(p.accept)
	p.group.Go(p.look)
	return p
}

// Accept implements net.Listener.
func (p *Passing) Accept() (net.Conn, error) {
	select {
	case conn := <-p.own:
		return conn, nil
	case <-p.failed:
		return nil, p.err
	}
}

// Addr implements net.Listener.
func (p *Passing) Addr() net.Addr { return p.of.Addr() }

// Close closes the listener, and all connections that it passes on.
func (p *Passing) Close() error {
	p.end()
	err := p.of.Close()
	p.group.Wait()
	return err
}

func (p *Passing) accept() {
	for {
		conn, err := p.of.Accept()
		if passes(err) {
			<-time.After(lookEvery)
			continue
		}
		if err != nil {
			p.err = err
			close(p.failed)
			return
		}
		p.group.Go(func() { p.pass(conn) })
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
		default:
			_ = conn.Close()
			return
		}
		there, err := dial(p.ended, leader, conn.RemoteAddr())
		if err == nil {
			p.join(conn, there)
		}
		<-p.slots
		if err == nil {
			return
		}
	}
	k := &kept{Conn: conn, of: p}
	p.mu.Lock()
	p.kept[k] = struct{}{}
	p.mu.Unlock()
	select {
	case p.own <- k:
	case <-p.failed:
		_ = k.Close()
	}
}

// dial connects to the leader, and says whose connection follows.
func dial(ctx context.Context, leader Leader, client net.Addr) (net.Conn, error) {
	conn, err := connect(ctx, leader.Address)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(conn, "%s %s %s\n", greeting, leader.Secret, client); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// join copies both ways.
func (p *Passing) join(conn, there net.Conn) {
	stop := context.AfterFunc(p.ended, func() {
		_ = conn.Close()
		_ = there.Close()
	})
	defer stop()
	plain := conn
	if tcp, ok := socket.Within[*net.TCPConn](conn); ok {
		plain = tcp // whose bytes the kernel moves
	}
	var both sync.WaitGroup
	both.Go(func() { copyTo(there, plain) })
	copyTo(plain, there)
	both.Wait()
	_ = conn.Close()
	_ = there.Close()
}

// copyTo copies until from ends, and tells to that nothing more comes.
func copyTo(to, from net.Conn) {
	_, err := io.Copy(to, from)
	closer, ok := to.(interface{ CloseWrite() error })
	if err != nil || !ok || closer.CloseWrite() != nil {
		_ = to.Close()
		_ = from.Close()
	}
}

// A kept is a connection that this server answers for want of a leader.
type kept struct {
	net.Conn
	of *Passing
}

// Unwrap returns the connection itself; see [socket.Within].
func (k *kept) Unwrap() net.Conn { return k.Conn }

// Close closes the connection.
func (k *kept) Close() error {
	k.of.mu.Lock()
	delete(k.of.kept, k)
	k.of.mu.Unlock()
	return k.Conn.Close()
}

// look ends the connections that this server answered for want of a leader, once there is one: their clients
// connect again, and reach it.
func (p *Passing) look() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	known := Leader{}
	for {
		select {
		case <-tick.C:
		case <-p.ended.Done():
			return
		}
		now := p.leader()
		if now != known && now.Address != "" {
			p.mu.Lock()
			all := make([]*kept, 0, len(p.kept))
			for k := range p.kept {
				all = append(all, k)
			}
			p.mu.Unlock()
			for _, k := range all {
				_ = k.Close()
			}
		}
		known = now
	}
}
