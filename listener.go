package main

import (
	"net"
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
		return nil, err
	}
	return patientConn{conn, l.patience}, nil
}

type patientConn struct {
	net.Conn
	patience time.Duration
}

// Unwrap returns the connection itself, for a writer with deadlines of its own.
func (c patientConn) Unwrap() net.Conn { return c.Conn }

// Write writes p piece by piece.
func (c patientConn) Write(p []byte) (int, error) {
	written := 0
	for written < len(p) {
		if err := c.SetWriteDeadline(time.Now().Add(c.patience)); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(p[written:min(len(p), written+writePiece)])
		written += n
		if err != nil {
			return written, err
		}
	}
	return written, nil
}
