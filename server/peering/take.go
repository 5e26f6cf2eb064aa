package peering

import (
	"bytes"
	"crypto/subtle"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// greeting begins what a server says before it passes a connection on: "rockpool-pass SECRET CLIENT\n".
const greeting = "rockpool-pass"

// watching begins what a server says that wants to take over when this one ends: "rockpool-watch SECRET\n". It is told
// what it needs for that, and the connection stays.
const watching = "rockpool-watch"

// Bounds of a greeting.
const (
	maxGreeting  = 256
	greetWithin  = 2 * time.Second
	maxGreetings = 64 // that are read at once
)

// A Taking is a listener of the connections that other servers pass on. Each has the address of the client
// that it came from. Close it.
type Taking struct {
	net.Listener
	secret string
	tell   func() string
	taken  chan net.Conn
	slots  chan struct{}
	failed chan struct{} // closed when the listener is; err says why
	err    error
	group  sync.WaitGroup

	mu       sync.Mutex // guards watchers
	watchers map[net.Conn]struct{}
}

// Take returns a listener of what comes with a secret. It tells servers that watch this one what tell returns.
func Take(of net.Listener, secret string, tell func() string) *Taking {
	t := &Taking{Listener: of, secret: secret, tell: tell, watchers: map[net.Conn]struct{}{}, taken: make(chan net.Conn), slots: make(chan struct{}, maxGreetings), failed: make(chan struct{})}
	t.group.Go(t.accept)
	return t
}

// Accept implements net.Listener.
func (t *Taking) Accept() (net.Conn, error) {
	select {
	case conn := <-t.taken:
		return conn, nil
	case <-t.failed:
		return nil, t.err
	}
}

// Close implements net.Listener.
func (t *Taking) Close() error {
	err := t.Listener.Close()
	t.mu.Lock()
	for conn := range t.watchers {
		_ = conn.Close()
	}
	t.mu.Unlock()
	t.group.Wait()
	return err
}

func (t *Taking) accept() {
	for {
		conn, err := t.Listener.Accept()
		if passes(err) {
			<-time.After(lookEvery)
			continue
		}
		if err != nil {
			t.err = err
			close(t.failed)
			return
		}
		t.slots <- struct{}{}
		t.group.Go(func() {
			defer func() { <-t.slots }()
			client, rest, err := t.greeted(conn)
			switch {
			case err != nil:
				_ = conn.Close()
				return
			case client == nil:
				t.watched(conn)
				return
			}
			select {
			case t.taken <- &passed{Conn: conn, client: client, rest: rest}:
			case <-t.failed:
				_ = conn.Close()
			}
		})
	}
}

// watched tells a server that watches this one what it needs, and keeps its connection until either ends.
func (t *Taking) watched(conn net.Conn) {
	_ = conn.SetDeadline(time.Now().Add(greetWithin))
	if _, err := io.WriteString(conn, t.tell()+"\n"); err != nil || conn.SetDeadline(time.Time{}) != nil {
		_ = conn.Close()
		return
	}
	t.mu.Lock()
	t.watchers[conn] = struct{}{}
	t.mu.Unlock()
	t.group.Go(func() {
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
		t.mu.Lock()
		delete(t.watchers, conn)
		t.mu.Unlock()
	})
}

var errGreeting = errors.New("not a server of this cluster")

// greeted reads a greeting, and returns whose connection it is, nil for a server that watches, and what was read
// beyond.
func (t *Taking) greeted(conn net.Conn) (client net.Addr, rest []byte, err error) {
	_ = conn.SetReadDeadline(time.Now().Add(greetWithin))
	var buf [maxGreeting]byte
	read, end := 0, -1
	for end < 0 {
		if read == len(buf) {
			return nil, nil, errGreeting
		}
		n, err := conn.Read(buf[read:])
		if err != nil {
			return nil, nil, err
		}
		read += n
		end = bytes.IndexByte(buf[:read], '\n')
	}
	_ = conn.SetReadDeadline(time.Time{})
	fields := strings.Split(string(buf[:end]), " ")
	if len(fields) < 2 || subtle.ConstantTimeCompare([]byte(fields[1]), []byte(t.secret)) != 1 {
		return nil, nil, errGreeting
	}
	if len(fields) == 2 && fields[0] == watching {
		return nil, nil, nil
	}
	if len(fields) != 3 || fields[0] != greeting {
		return nil, nil, errGreeting
	}
	address, err := netip.ParseAddrPort(fields[2])
	if err != nil {
		return nil, nil, errGreeting
	}
	return net.TCPAddrFromAddrPort(address), bytes.Clone(buf[end+1 : read]), nil
}

// A passed is a connection that another server passes on.
type passed struct {
	net.Conn
	client net.Addr
	rest   []byte // that was read with the greeting
}

// RemoteAddr is the client's.
func (p *passed) RemoteAddr() net.Addr { return p.client }

// Unwrap returns the connection itself; see [socket.Within].
func (p *passed) Unwrap() net.Conn { return p.Conn }

// Read implements net.Conn.
func (p *passed) Read(b []byte) (int, error) {
	if len(p.rest) > 0 {
		n := copy(b, p.rest)
		p.rest = p.rest[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}
