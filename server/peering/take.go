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

// What a server says first, in a line:
//
//	rockpool-pass SECRET CLIENT   the connection of a client at this address and port follows
//	rockpool-watch SECRET         it wants to lead when this server ends: it gets a line, and the connection stays
const (
	greeting = "rockpool-pass"
	watching = "rockpool-watch"
)

// Bounds of a greeting.
const (
	maxGreeting  = 256
	greetWithin  = 2 * time.Second
	maxGreetings = 64 // that are read at once
)

// A Taking is a listener of the connections that other servers pass on. Each has the address of the client
// that it came from.
type Taking struct {
	of     net.Listener
	secret string
	tell   func() string
	taken  chan net.Conn
	slots  chan struct{}
	closed chan struct{} // closed by Close
	close  sync.Once
	failed chan struct{} // closed when of failed; err says why
	err    error
}

// Take returns a listener of what comes with a secret. It tells servers that watch this one what tell returns. Where
// that is "" they ask again. Close leaves the other listener open. The caller closes that last: as long as it accepts
// connections, others know that this process runs.
func Take(of net.Listener, secret string, tell func() string) *Taking {
	t := &Taking{
		of: of, secret: secret, tell: tell, taken: make(chan net.Conn), slots: make(chan struct{}, maxGreetings),
		closed: make(chan struct{}), failed: make(chan struct{}),
	}
	go t.accept() // ends with the listener
	return t
}

// Accept implements net.Listener.
func (t *Taking) Accept() (net.Conn, error) {
	select {
	case conn := <-t.taken:
		return conn, nil
	case <-t.closed:
		return nil, net.ErrClosed
	case <-t.failed:
		return nil, t.err
	}
}

// Addr implements net.Listener.
func (t *Taking) Addr() net.Addr { return t.of.Addr() }

// Close ends Accept.
func (t *Taking) Close() error {
	t.close.Do(func() { close(t.closed) })
	return nil
}

func (t *Taking) accept() {
	for {
		conn, err := t.of.Accept()
		if passes(err) {
			<-time.After(checkEvery)
			continue
		}
		if err != nil {
			t.err = err
			close(t.failed)
			return
		}
		select {
		case t.slots <- struct{}{}:
			go func() {
				defer func() { <-t.slots }()
				t.take(conn)
			}()
		case <-time.After(greetWithin): // too many that say nothing
			_ = conn.Close()
		}
	}
}

// take reads a greeting, and does what it says.
func (t *Taking) take(conn net.Conn) {
	client, rest, err := t.greeted(conn)
	switch {
	case err != nil:
		_ = conn.Close()
	case client == nil:
		t.watched(conn)
	default:
		select {
		case t.taken <- &passed{Conn: conn, client: client, rest: rest}:
		case <-t.closed:
			_ = conn.Close()
		case <-t.failed:
			_ = conn.Close()
		}
	}
}

// watched tells a server that watches this one what it needs, and keeps the connection until the other ends it, or
// this process ends.
func (t *Taking) watched(conn net.Conn) {
	told := t.tell()
	_ = conn.SetDeadline(time.Now().Add(greetWithin))
	if told == "" || writeLine(conn, told) != nil || conn.SetDeadline(time.Time{}) != nil {
		_ = conn.Close()
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	}()
}

func writeLine(to io.Writer, text string) error {
	_, err := io.WriteString(to, text+"\n")
	return err
}

var errGreeting = errors.New("not a server of this cluster")

// greeted reads a greeting. It returns the client whose connection it is, nil for a server that watches, and what was
// read beyond.
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

// Unwrap returns the connection itself; see package socket.
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
