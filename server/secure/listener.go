// Package secure has what a server that faces networks needs: TLS with certificates that
// change while it serves, HTTP/2 within bounds, and the headers that restrict browsers.
package secure

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/graph/transport/socket"
)

// A Listener speaks TLS on the connections of another one. The first Read or Write of a
// connection does the handshake, within the connection's deadlines: a client that doesn't
// finish it holds nothing but its connection. A handshake that fails is logged at debug
// level. If the connection below has a method HandDeadlines, the Listener calls it: from then
// on only the connection by TLS sets deadlines for writes.
type Listener struct {
	net.Listener
	certificates *Certificates
	logger       *zap.Logger
}

// Listen returns a listener of TLS.
func Listen(of net.Listener, certificates *Certificates, logger *zap.Logger) *Listener {
	return &Listener{of, certificates, logger}
}

// Accept returns the next connection. Its TLS hasn't begun.
func (l *Listener) Accept() (net.Conn, error) {
	below, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if patient, ok := socket.Within[interface{ HandDeadlines() }](below); ok {
		patient.HandDeadlines()
	}
	return &Conn{Conn: below, of: l}, nil
}

// A Conn is a connection by TLS.
type Conn struct {
	net.Conn // that carries it: addresses and deadlines are its own
	of       *Listener

	onlyHTTP1 bool
	begin     sync.Once
	begun     *tls.Conn // see tls
	report    sync.Once // a handshake that failed
	preface   int       // how many bytes of clientPreface were read; -1: all, or it isn't HTTP/2
	wrong     error     // of the first bytes; nil: they fit, so far
}

// tls returns the connection with the certificate of its first use.
func (c *Conn) tls() *tls.Conn {
	c.begin.Do(func() { c.begun = tls.Server(c.Conn, c.of.certificates.config(c.onlyHTTP1)) })
	return c.begun
}

// NetConn returns the connection below; see [socket.Carrier].
func (c *Conn) NetConn() net.Conn { return c.Conn }

// OnlyHTTP1 has the handshake offer no HTTP/2. Call it before the first Read or Write.
func (c *Conn) OnlyHTTP1() { c.onlyHTTP1 = true }

// HTTP2 does the handshake, and reports whether client and server have agreed on HTTP/2.
func (c *Conn) HTTP2() bool { return c.handshake() == nil && c.State().NegotiatedProtocol == "h2" }

// State returns that of TLS. It is empty before the handshake.
func (c *Conn) State() tls.ConnectionState { return c.tls().ConnectionState() }

// errHandshake ends a connection whose handshake failed. net/http answers nothing then.
var errHandshake error = &net.OpError{Op: "read", Net: "tls", Err: errors.New("the handshake failed")}

func (c *Conn) handshake() error {
	err := c.tls().Handshake()
	if err == nil {
		return nil
	}
	c.report.Do(func() {
		c.of.logger.Debug("a TLS handshake failed", zap.Stringer("peer", c.RemoteAddr()), zap.Error(err))
		if wrong := (tls.RecordHeaderError{}); errors.As(err, &wrong) && wrong.Conn != nil && plainHTTP(wrong.RecordHeader) {
			c.refusePlain()
		}
	})
	return errHandshake
}

// refuseTime is how long the server reads on from a client that doesn't speak TLS: closing with
// unread data would discard the answer.
const refuseTime = time.Second

func (c *Conn) refusePlain() {
	_, _ = io.WriteString(c.Conn, "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nThis server speaks TLS: use https://\n")
	if below, ok := socket.Within[interface{ CloseWrite() error }](c.Conn); ok {
		_ = below.CloseWrite() // it is closed anyway
	}
	_ = c.Conn.SetReadDeadline(time.Now().Add(refuseTime))
	_, _ = io.Copy(io.Discard, c.Conn)
}

// plainHTTP reports whether a client that should begin with TLS begins with a request.
func plainHTTP(header [5]byte) bool {
	switch string(header[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		return true
	}
	return false
}

// clientPreface is how a client begins HTTP/2. net/http takes it for the choice of HTTP/2.
const clientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

var errPreface error = &net.OpError{Op: "read", Net: "tls", Err: errors.New("the protocol isn't the one that the handshake chose")}

// Read reads from the client. It fails if a client that chose HTTP/2 speaks HTTP/1, or the other
// way round: the checks of the chosen protocol would miss such requests.
func (c *Conn) Read(p []byte) (int, error) {
	if err := c.handshake(); err != nil {
		return 0, err
	}
	if c.wrong != nil {
		return 0, c.wrong
	}
	n, err := c.tls().Read(p)
	if c.preface >= 0 && n > 0 && !c.begins(p[:n]) {
		c.wrong = errPreface
		return 0, c.wrong
	}
	return n, err
}

// begins takes in the first bytes of a connection, and reports whether they fit.
func (c *Conn) begins(p []byte) bool {
	same := 0
	for same < len(p) && c.preface+same < len(clientPreface) && p[same] == clientPreface[c.preface+same] {
		same++
	}
	c.preface += same
	whole := c.preface == len(clientPreface)
	if !whole && same == len(p) {
		return true // so far
	}
	c.preface = -1
	return whole == (c.State().NegotiatedProtocol == "h2")
}

// Write writes to the client.
func (c *Conn) Write(p []byte) (int, error) {
	if err := c.handshake(); err != nil {
		return 0, err
	}
	return c.tls().Write(p)
}

// CloseWrite says that nothing more comes, by TLS and by TCP.
func (c *Conn) CloseWrite() error {
	if c.handshake() != nil || !c.hasRoom() {
		return nil
	}
	if err := c.tls().CloseWrite(); err != nil {
		return err
	}
	if below, ok := socket.Within[interface{ CloseWrite() error }](c.Conn); ok {
		return below.CloseWrite()
	}
	return nil
}

// Close closes the connection. It sends TLS's close_notify only if that doesn't wait for a
// client that reads nothing.
func (c *Conn) Close() error {
	if !c.hasRoom() {
		return c.Conn.Close()
	}
	return c.tls().Close()
}

// hasRoom reports whether a short write would not wait.
func (c *Conn) hasRoom() bool {
	tcp := socket.Carrier(c.Conn)
	if tcp == nil {
		return true
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false
	}
	room := false
	err = raw.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(poll, 0)
		room = err == nil && n == 1 && poll[0].Revents&unix.POLLOUT != 0
	})
	return err == nil && room
}
