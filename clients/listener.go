package clients

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// Listen returns a listener with the limiter's bounds for its connections. The connections never
// carry a request with two lengths or too many fields; see framingReader.
func (p *Limiter) Listen(of net.Listener) *Listener {
	return &Listener{Listener: of, peers: p, turns: make(chan struct{}, maxRefusing), RefuseTime: refuseTime}
}

// A Listener bounds its connections; see [Limiter.Listen]. Call Wait after the last Accept.
type Listener struct {
	net.Listener
	peers    *Limiter
	turns    chan struct{} // one for each connection that is being refused
	refusing sync.WaitGroup

	RefuseTime time.Duration // for each refused connection, to send it the reason
}

// The limits of refusing: how many connections concurrently get the reason, and for how long.
const (
	maxRefusing = 64
	refuseTime  = time.Second
)

// Accept returns the next connection within the bounds.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		of := l.peers.holdPeer(addressOf(accepted.RemoteAddr()))
		refused := l.peers.acquireConnection(of)
		if refused == nil {
			c := &conn{Conn: accepted, peers: l.peers, peer: of}
			c.framing.refused = func(why Bound) { l.peers.refused[why].Add(1) }
			return c, nil
		}
		l.peers.releasePeer(of) // before the peer gets the response
		l.refuse(accepted, refused)
	}
}

// refuse responds with err to whatever the peer sends.
func (l *Listener) refuse(conn net.Conn, err error) {
	select {
	case l.turns <- struct{}{}:
	default:
		_ = conn.Close()
		return
	}
	encrypted, isEncrypted := Within[interface{ OnlyHTTP1() }](conn)
	if isEncrypted {
		encrypted.OnlyHTTP1() // the response is HTTP/1
	}
	code := runtime.CodeOf(err)
	body, _ := json.Marshal(map[string]any{"errors": []any{map[string]any{ // it can always be marshalled
		"message": err.Error(), "extensions": map[string]any{"code": code, "retryable": code.Retryable()},
	}}})
	l.refusing.Go(func() {
		defer func() { <-l.turns }()
		_ = conn.SetDeadline(time.Now().Add(l.RefuseTime))
		if isEncrypted { // otherwise the end of the handshake would come with a response before the request
			_, _ = conn.Read(make([]byte, 512))
		}
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: %d\r\nRetry-After: %s\r\nConnection: close\r\n\r\n%s",
			len(body), RetryAfter, body)
		_ = closeWrite(conn)             // it is closed anyway
		_, _ = io.Copy(io.Discard, conn) // unread bytes would make the kernel discard the response
		_ = conn.Close()
	})
}

// Wait waits for the connections that are being refused, at most RefuseTime.
func (l *Listener) Wait() { l.refusing.Wait() }

// A conn is a connection that counts for its peer until it is closed.
type conn struct {
	net.Conn
	peers   *Limiter
	peer    *caller
	framing framingReader
	begun   bool         // something was read
	streams atomic.Int64 // concurrent requests
	closed  atomic.Bool
}

// Unwrap returns the connection itself; see [Within].
func (c *conn) Unwrap() net.Conn { return c.Conn }

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if !c.begun {
		c.begun = true
		if encrypted, ok := Within[interface{ HTTP2() bool }](c.Conn); ok && encrypted.HTTP2() {
			c.framing.off() // frames of HTTP/2 have one length of a body
		}
	}
	return c.framing.read(c.Conn, p)
}

// Hijacked ends the checks of framing, because the connection no longer speaks HTTP.
func (c *conn) Hijacked() { c.framing.off() }

// CloseWrite lets net/http send its last response to a peer that is still sending.
func (c *conn) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(conn net.Conn) error {
	if closer, ok := Within[interface{ CloseWrite() error }](conn); ok {
		return closer.CloseWrite()
	}
	return nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	err := c.Conn.Close()
	if !c.closed.Swap(true) {
		c.peers.releaseConnection(c.peer)
		c.peers.releasePeer(c.peer)
	}
	return err
}
