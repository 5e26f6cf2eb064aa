// Package connections has the listeners that a server stacks. They disconnect peers that read nothing,
// limit HTTP/2, and use TLS with certificates that can change at runtime.
//
// They also let several servers of one cluster act as one. One of them leads. The others forward each
// connection to the leader byte by byte, so every request, stream and subscription is served as if it
// had arrived there (docs/decisions/0044).
package connections

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rockpool/rockpool/clients"
)

// A deadlineListener disconnects peers that read nothing for the time patience. A deadline for a
// whole response would also disconnect slow readers. Here each piece of a write has its own
// deadline, so any progress counts. On loopback, a reader of 1 KiB/s opens its TCP window only
// every 64 s, so patience must be longer than that.
type deadlineListener struct {
	net.Listener
	patience time.Duration
}

// WithDeadlines returns a listener whose connections end if their peer reads nothing for two minutes.
func WithDeadlines(of net.Listener) net.Listener { return deadlineListener{of, writePatience} }

const writePatience = 2 * time.Minute

func (l deadlineListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, markTemporary(err)
	}
	return &deadlineConn{Conn: conn, patience: l.patience}, nil
}

// A temporaryError is an error of accept(2) that doesn't mean that the listener is broken. net/http
// accepts again after a pause, as it does without free descriptors.
type temporaryError struct{ error }

func (temporaryError) Timeout() bool { return false }

// Temporary implements net.Error. net/http checks it.
func (temporaryError) Temporary() bool { return true }

func (e temporaryError) Unwrap() error { return e.error }

// markTemporary marks temporary errors: the machine has no memory, or the connection to accept is already broken.
func markTemporary(err error) error {
	// accept(2): Linux also returns the pending network errors of the connection to accept.
	for _, passes := range []error{
		syscall.ENOBUFS, syscall.ENOMEM, syscall.EPROTO, syscall.EPERM, syscall.ENETDOWN, syscall.ENOPROTOOPT, syscall.EHOSTDOWN,
		syscall.ENONET, syscall.EHOSTUNREACH, syscall.EOPNOTSUPP, syscall.ENETUNREACH,
	} {
		if errors.Is(err, passes) {
			return temporaryError{err}
		}
	}
	return err
}

// A deadlineConn is a connection of a deadlineListener.
type deadlineConn struct {
	net.Conn
	patience time.Duration
	handed   bool        // the caller sets write deadlines
	cut      atomic.Bool // all writes fail
}

// Unwrap returns the underlying connection, for a writer that sets its own deadlines.
func (c *deadlineConn) Unwrap() net.Conn { return c.Conn }

// HandDeadlines leaves write deadlines to the caller, a TLS connection that sets its own. Call it
// before the first Write.
func (c *deadlineConn) HandDeadlines() { c.handed = true }

// SetWriteDeadline with a past time makes the current Write and all later ones fail.
func (c *deadlineConn) SetWriteDeadline(at time.Time) error {
	if !at.IsZero() && !time.Now().Before(at) {
		c.cut.Store(true) // must be set before the deadline; see Write
	}
	return c.Conn.SetWriteDeadline(at)
}

// Write writes p in pieces, each with its own deadline.
func (c *deadlineConn) Write(p []byte) (int, error) {
	if c.handed {
		return c.Conn.Write(p)
	}
	written := 0
	for written < len(p) {
		if err := c.Conn.SetWriteDeadline(time.Now().Add(c.patience)); err != nil {
			return written, err
		}
		if c.cut.Load() { // checked after setting the deadline, so that a past deadline is never replaced unnoticed
			return written, os.ErrDeadlineExceeded
		}
		n, err := c.Conn.Write(p[written:min(len(p), written+clients.WritePiece)])
		written += n
		if err != nil {
			return written, err
		}
	}
	return written, nil
}
