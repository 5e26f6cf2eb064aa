package server

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// A patientListener cuts off peers that take nothing at all for a while. An
// answer to a POST has no deadline of its own, and one for a whole answer would
// cut off a slow reader too. Here every piece of a write has its own, so that
// any progress counts. On loopback a reader of 1 KiB/s opens its window
// once in 64 s, hence the patience.
type patientListener struct {
	net.Listener
	patience time.Duration
}

const (
	writePatience = 2 * time.Minute
	writePiece    = 16 << 10
)

// Accept returns the next connection.
func (l patientListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, passing(err)
	}
	return &patientConn{Conn: conn, patience: l.patience}, nil
}

// A passingError is one of accept(2) that says nothing of the listener: the server
// accepts again after a pause, as it does by itself where no descriptors are left.
type passingError struct{ error }

// Timeout implements net.Error.
func (passingError) Timeout() bool { return false }

// Temporary implements net.Error. The HTTP server asks for it.
func (passingError) Temporary() bool { return true }

// Unwrap returns the error itself.
func (e passingError) Unwrap() error { return e.error }

// passing marks errors that pass: the machine had no memory, or the connection that
// was to be accepted is broken already.
func passing(err error) error {
	for _, passes := range []error{
		syscall.ENOBUFS, syscall.ENOMEM, syscall.EPROTO, syscall.EPERM, syscall.ENETDOWN, syscall.ENOPROTOOPT, syscall.EHOSTDOWN,
		syscall.ENONET, syscall.EHOSTUNREACH, syscall.EOPNOTSUPP, syscall.ENETUNREACH,
	} {
		if errors.Is(err, passes) {
			return passingError{err}
		}
	}
	return err
}

type patientConn struct {
	net.Conn
	patience time.Duration
	handed   bool        // deadlines are its user's
	cut      atomic.Bool // nothing more is written
}

// Unwrap returns the connection itself, for a writer with deadlines of its own.
func (c *patientConn) Unwrap() net.Conn { return c.Conn }

// HandDeadlines leaves the deadlines of writes to the caller, who speaks TLS, and is written to
// with patience. Call it before the first Write.
func (c *patientConn) HandDeadlines() { c.handed = true }

// SetWriteDeadline with a time that has passed cuts the connection off: the Write under way fails,
// and so does each later one.
func (c *patientConn) SetWriteDeadline(at time.Time) error {
	if !at.IsZero() && !time.Now().Before(at) {
		c.cut.Store(true) // before the deadline: see Write
	}
	return c.Conn.SetWriteDeadline(at)
}

// Write writes p piece by piece.
func (c *patientConn) Write(p []byte) (int, error) {
	if c.handed {
		return c.Conn.Write(p)
	}
	written := 0
	for written < len(p) {
		if err := c.Conn.SetWriteDeadline(time.Now().Add(c.patience)); err != nil {
			return written, err
		}
		if c.cut.Load() { // after the deadline: one that has passed isn't replaced unseen
			return written, os.ErrDeadlineExceeded
		}
		n, err := c.Conn.Write(p[written:min(len(p), written+writePiece)])
		written += n
		if err != nil {
			return written, err
		}
	}
	return written, nil
}
