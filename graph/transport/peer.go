package transport

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

type connKey struct{}

// ConnContext is for http.Server: it lets the transports see what the kernel
// knows of a peer that is silent.
func ConnContext(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// unwrap returns the TCP connection that conn is, or only adds deadlines to;
// nil if it isn't plain TCP.
func unwrap(conn net.Conn) *net.TCPConn {
	tcp, _ := within[*net.TCPConn](conn)
	return tcp
}

// within returns the first of conn and the connections that it wraps that is a T.
func within[T any](conn net.Conn) (is T, ok bool) {
	for {
		if is, ok = conn.(T); ok {
			return is, true
		}
		wrapper, wraps := conn.(interface{ Unwrap() net.Conn })
		if !wraps {
			return is, false
		}
		conn = wrapper.Unwrap()
	}
}

// unanswered is how often the kernel asks again before a peer counts as
// vanished: within 1.4 s on a fast network.
const unanswered = 3

// vanished reports whether the peer's kernel answers no more: what was sent,
// or the question whether it has room again, was repeated in vain. known is
// false where that can't be told.
func vanished(tcp *net.TCPConn) (gone, known bool) {
	if tcp == nil {
		return false, false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false, false
	}
	err = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			known = true
			gone = info.Retransmits >= unanswered || info.Probes >= unanswered
		}
	})
	return gone, known && err == nil
}

// A guardedConn is a connection whose writes have a deadline each, which any
// progress moves on: a slow reader is waited for, one that takes nothing is cut
// off. Its methods are safe for concurrent use.
type guardedConn struct {
	net.Conn
	tcp      *net.TCPConn // nil if it isn't plain TCP
	patience time.Duration
	heard    atomic.Int64 // when something was read, in Unix nanoseconds
	writing  sync.Mutex   // held during a message, also while it waits for its peer

	mu  sync.Mutex // guards end, and the setting of write deadlines
	end time.Time  // no write takes longer; zero: no end
}

const writePiece = 16 << 10

// unsent is how many bytes the kernel takes for a peer beyond what is on its
// way: without this bound a stalled one holds megabytes there.
const unsent = 128 << 10

// boundUnsent sets that bound.
func boundUnsent(tcp *net.TCPConn) {
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent) // older kernels hold more
		})
	}
}

func guard(conn net.Conn, patience time.Duration) *guardedConn {
	c := &guardedConn{Conn: conn, tcp: unwrap(conn), patience: patience}
	if c.tcp != nil {
		boundUnsent(c.tcp)
	}
	c.heard.Store(time.Now().UnixNano())
	return c
}

// quiet returns for how long nothing was heard from the peer.
func (c *guardedConn) quiet() time.Duration { return time.Since(time.Unix(0, c.heard.Load())) }

// Read reads.
func (c *guardedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.heard.Store(time.Now().UnixNano())
	}
	return n, err
}

// hurry gives all writes, also the one that waits, so long from now.
func (c *guardedConn) hurry(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end = time.Now().Add(d)
	_ = c.SetWriteDeadline(c.end) // an error is one of a closed connection
}

// extend gives the next write its time.
func (c *guardedConn) extend() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	deadline := time.Now().Add(c.patience)
	if !c.end.IsZero() && deadline.After(c.end) {
		deadline = c.end
	}
	return c.SetWriteDeadline(deadline)
}

// Write writes p.
func (c *guardedConn) Write(p []byte) (int, error) {
	n, err := c.writeAll(net.Buffers{p})
	return int(n), err
}

// writeAll writes the buffers as one piece.
func (c *guardedConn) writeAll(buffers net.Buffers) (int64, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.tcp == nil {
		return c.writePieces(buffers)
	}
	written := int64(0)
	for {
		if err := c.extend(); err != nil {
			return written, err
		}
		n, err := buffers.WriteTo(c.tcp)
		written += n
		if err == nil || n == 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return written, err
		}
	}
}

// writePieces is for what can't say how much of a late write was taken.
func (c *guardedConn) writePieces(buffers net.Buffers) (int64, error) {
	written := int64(0)
	for _, buffer := range buffers {
		for len(buffer) > 0 {
			if err := c.extend(); err != nil {
				return written, err
			}
			n, err := c.Conn.Write(buffer[:min(len(buffer), writePiece)])
			written += int64(n)
			if err != nil {
				return written, err
			}
			buffer = buffer[n:]
		}
	}
	return written, nil
}

// A hijacker hands a guarded connection to whom takes one over.
type hijacker struct {
	http.ResponseWriter
	patience time.Duration
	conn     *guardedConn
}

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if bounded, ok := conn.(*boundedConn); ok {
		bounded.framing.off()
	}
	h.conn = guard(conn, h.patience)
	return h.conn, bufio.NewReadWriter(buffered.Reader, bufio.NewWriterSize(h.conn, 512)), nil
}
