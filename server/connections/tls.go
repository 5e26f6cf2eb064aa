package connections

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/clients"
)

// A tlsListener uses TLS on the connections of another listener. The first Read or Write of a
// connection does the handshake, within the connection's deadlines: a client that doesn't finish it
// holds only its connection. A failed handshake is logged at debug level. If the underlying
// connection has a method HandDeadlines, the tlsListener calls it: after that, only the TLS connection
// sets write deadlines.
type tlsListener struct {
	net.Listener
	certificates *Certificates
	logger       *zap.Logger
}

// Encrypt returns a TLS listener whose connections end if their peer reads nothing for two minutes.
// Writes have their deadline above TLS: a late write ends the connection.
func Encrypt(of net.Listener, certificates *Certificates, logger *zap.Logger) net.Listener {
	return WithDeadlines(&tlsListener{of, certificates, logger})
}

// Accept returns the next connection, before its handshake.
func (l *tlsListener) Accept() (net.Conn, error) {
	below, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if deadlines, ok := clients.Within[interface{ HandDeadlines() }](below); ok {
		deadlines.HandDeadlines()
	}
	return &tlsConn{Conn: below, of: l}, nil
}

// A tlsConn is a TLS connection.
type tlsConn struct {
	net.Conn // the underlying connection, with addresses and deadlines
	of       *tlsListener

	onlyHTTP1 bool
	begin     sync.Once
	begun     *tls.Conn // see tls
	report    sync.Once // for a failed handshake
	preface   int       // number of matching bytes of clientPreface so far; -1 after the check
	wrong     error     // error of the first bytes; nil if they match so far
}

// tls returns the TLS connection. It uses the certificate at the time of the first call.
func (c *tlsConn) tls() *tls.Conn {
	c.begin.Do(func() { c.begun = tls.Server(c.Conn, c.of.certificates.config(c.onlyHTTP1)) })
	return c.begun
}

// NetConn returns the underlying connection; see [clients.Carrier].
func (c *tlsConn) NetConn() net.Conn { return c.Conn }

// OnlyHTTP1 makes the handshake offer only HTTP/1. Call it before the first Read or Write.
func (c *tlsConn) OnlyHTTP1() { c.onlyHTTP1 = true }

// HTTP2 does the handshake and reports whether it chose HTTP/2.
func (c *tlsConn) HTTP2() bool { return c.handshake() == nil && c.State().NegotiatedProtocol == "h2" }

// State returns the TLS state. It is empty before the handshake.
func (c *tlsConn) State() tls.ConnectionState { return c.tls().ConnectionState() }

// errHandshake ends a connection whose handshake failed. net/http then sends no response.
var errHandshake error = &net.OpError{Op: "read", Net: "tls", Err: errors.New("the handshake failed")}

// handshake does the handshake, if none was done yet. It logs a failure once and returns
// errHandshake.
func (c *tlsConn) handshake() error {
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

// refuseTime is how long the server continues to read from a client that doesn't use TLS. Closing
// with unread data would discard the response.
const refuseTime = time.Second

// refusePlain answers a client that sent a plain HTTP request. It blocks for up to refuseTime.
func (c *tlsConn) refusePlain() {
	_, _ = io.WriteString(c.Conn, "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nThis server speaks TLS: use https://\n")
	if below, ok := clients.Within[interface{ CloseWrite() error }](c.Conn); ok {
		_ = below.CloseWrite() // the connection is closed anyway
	}
	_ = c.Conn.SetReadDeadline(time.Now().Add(refuseTime))
	_, _ = io.Copy(io.Discard, c.Conn)
}

// plainHTTP reports whether a client starts with an HTTP request instead of TLS.
func plainHTTP(header [5]byte) bool {
	switch string(header[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		return true
	}
	return false
}

// clientPreface is the start of HTTP/2. net/http uses it to detect HTTP/2.
const clientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// errPreface is the error of Read for a client that speaks another protocol than it chose.
var errPreface error = &net.OpError{Op: "read", Net: "tls", Err: errors.New("the protocol isn't the one that the handshake chose")}

// Read reads from the client. It fails if a client speaks HTTP/1 after choosing HTTP/2, or the
// reverse: the checks of the chosen protocol would miss such requests.
func (c *tlsConn) Read(p []byte) (int, error) {
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

// begins checks the first bytes of a connection, and reports whether they match the chosen protocol.
func (c *tlsConn) begins(p []byte) bool {
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

func (c *tlsConn) Write(p []byte) (int, error) {
	if err := c.handshake(); err != nil {
		return 0, err
	}
	return c.tls().Write(p)
}

// CloseWrite ends the server's direction, in TLS and in TCP.
func (c *tlsConn) CloseWrite() error {
	if c.handshake() != nil || !c.hasRoom() {
		return nil
	}
	if err := c.tls().CloseWrite(); err != nil {
		return err
	}
	if below, ok := clients.Within[interface{ CloseWrite() error }](c.Conn); ok {
		return below.CloseWrite()
	}
	return nil
}

// Close closes the connection. It sends close_notify only if that can't block on a client that doesn't read.
func (c *tlsConn) Close() error {
	if !c.hasRoom() {
		return c.Conn.Close()
	}
	return c.tls().Close()
}

// hasRoom reports whether a short write wouldn't block.
func (c *tlsConn) hasRoom() bool {
	tcp := clients.Carrier(c.Conn)
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

// Limits of an HTTP/2 connection. HTTP/1 has one request per connection at a time; clients.Limiter
// counts further ones. net/http keeps up to four times as many started and cancelled requests as
// streams, which nothing counts. With 20 streams, 1,000 such connections took more memory than a
// server with 512 MiB has.
const (
	streams      = 10
	streamBuffer = 128 << 10 // of a body that arrives faster than it is read
	connBuffer   = 256 << 10 // of all streams
	frame        = 16 << 10  // the protocol's minimum
	pingAfter    = 15 * time.Second
	pingWithin   = 15 * time.Second
)

// Configure enables HTTP/2, with limits, for clients of a TLS listener. All listeners of the
// server must be of this kind.
func Configure(server *http.Server) {
	var both http.Protocols
	both.SetHTTP1(true)
	// net/http looks for HTTP/2 in the decrypted bytes of a connection. A tlsConn ensures that the
	// handshake has chosen it.
	both.SetUnencryptedHTTP2(true)
	server.Protocols = &both
	server.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams: streams, MaxReadFrameSize: frame,
		MaxReceiveBufferPerStream: streamBuffer, MaxReceiveBufferPerConnection: connBuffer,
		SendPingTimeout: pingAfter, PingTimeout: pingWithin,
	}
}
