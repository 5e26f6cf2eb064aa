package peers

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/rockpool/rockpool/graph/transport/framing"
	"github.com/rockpool/rockpool/graph/transport/response"
	"github.com/rockpool/rockpool/graph/transport/socket"
	"github.com/rockpool/rockpool/runtime"
)

// Listen returns a listener whose connections are bounded by these Peers, and
// never carry a request whose length was sent twice, or that has too many fields; see
// [framing.Reader].
func (p *Peers) Listen(of net.Listener) *Listener {
	return &Listener{Listener: of, peers: p, turns: make(chan struct{}, maxRefusing), RefuseTime: refuseTime}
}

// A Listener bounds its connections; see [Peers.Listen]. Wait for it when nobody calls
// Accept any more.
type Listener struct {
	net.Listener
	peers    *Peers
	turns    chan struct{} // holds one for each connection that is being refused
	refusing sync.WaitGroup

	RefuseTime time.Duration // of one that is refused, to hear why
}

// Refusing connections: so many at a time hear why, for so long.
const (
	maxRefusing = 64
	refuseTime  = time.Second
)

// Accept returns the next connection that isn't refused.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		of := l.peers.known(addressOf(accepted.RemoteAddr()))
		refused := l.peers.take(of)
		if refused == nil {
			c := &conn{Conn: accepted, peers: l.peers, peer: of}
			c.framing.Refused = func(why framing.Reason) {
				refused := Framing
				if why == framing.Fields {
					refused = Fields
				}
				l.peers.refused[refused].Add(1)
			}
			return c, nil
		}
		l.peers.forget(of) // before the peer hears of it
		l.refuse(accepted, refused)
	}
}

// refuse answers whatever comes with err.
func (l *Listener) refuse(conn net.Conn, err error) {
	select {
	case l.turns <- struct{}{}:
	default:
		_ = conn.Close()
		return
	}
	encrypted, isEncrypted := socket.Within[interface{ OnlyHTTP1() }](conn)
	if isEncrypted {
		encrypted.OnlyHTTP1() // which the answer is in
	}
	code := runtime.CodeOf(err)
	body := response.Append(nil, &graphql.Response{Errors: gqlerror.List{{
		Message: err.Error(), Extensions: map[string]any{"code": code, "retryable": code.Retryable()},
	}}})
	l.refusing.Go(func() {
		defer func() { <-l.turns }()
		_ = conn.SetDeadline(time.Now().Add(l.RefuseTime))
		if isEncrypted { // the end of a handshake would bring an answer before the request
			_, _ = conn.Read(make([]byte, 512))
		}
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: %d\r\nRetry-After: %s\r\nConnection: close\r\n\r\n%s",
			len(body), RetryAfter, body)
		_ = closeWrite(conn)             // it is closed anyway
		_, _ = io.Copy(io.Discard, conn) // what was sent and isn't read would take the answer along
		_ = conn.Close()
	})
}

// Wait waits for the connections that are being refused, for RefuseTime at most.
func (l *Listener) Wait() { l.refusing.Wait() }

// A conn is a connection that counts for its peer until it is closed.
type conn struct {
	net.Conn
	peers   *Peers
	peer    *caller
	framing framing.Reader
	begun   bool         // something was read
	streams atomic.Int64 // requests that it carries now
	closed  atomic.Bool
}

// Unwrap returns the connection itself; see [socket.Within].
func (c *conn) Unwrap() net.Conn { return c.Conn }

// Read reads.
func (c *conn) Read(p []byte) (int, error) {
	if !c.begun {
		c.begun = true
		if encrypted, ok := socket.Within[interface{ HTTP2() bool }](c.Conn); ok && encrypted.HTTP2() {
			c.framing.Off() // frames say once how long a body is
		}
	}
	return c.framing.Read(c.Conn, p)
}

// Hijacked says that what comes isn't HTTP any more.
func (c *conn) Hijacked() { c.framing.Off() }

// CloseWrite lets net/http send its last answer to a peer that is still sending.
func (c *conn) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(conn net.Conn) error {
	if closer, ok := socket.Within[interface{ CloseWrite() error }](conn); ok {
		return closer.CloseWrite()
	}
	return nil
}

// Close closes the connection.
func (c *conn) Close() error {
	err := c.Conn.Close()
	if !c.closed.Swap(true) {
		c.peers.give(c.peer)
		c.peers.forget(c.peer)
	}
	return err
}
