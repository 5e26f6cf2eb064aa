// Package socket guards connections: a write to a peer that reads nothing fails, and
// Vanished reports whether the peer's kernel still answers.
package socket

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

// ConnContext is for http.Server: it makes a request's connection known by [Of].
func ConnContext(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// Of returns the connection of a request; nil where the server lacks ConnContext.
func Of(ctx context.Context) net.Conn {
	conn, _ := ctx.Value(connKey{}).(net.Conn)
	return conn
}

// TCP returns the TCP connection that conn is, or only adds deadlines to;
// nil if it isn't plain TCP.
func TCP(conn net.Conn) *net.TCPConn {
	tcp, _ := Within[*net.TCPConn](conn)
	return tcp
}

// An encrypted connection changes what is written to the one below it: tls.Conn, for
// example.
type encrypted interface{ NetConn() net.Conn }

// Carrier returns the TCP connection that carries conn, encrypted or not; nil if none does.
// Nothing may be read from it or written to it.
func Carrier(conn net.Conn) *net.TCPConn {
	for {
		if tcp := TCP(conn); tcp != nil {
			return tcp
		}
		above, ok := Within[encrypted](conn)
		if !ok {
			return nil
		}
		conn = above.NetConn()
	}
}

// Within returns the first of conn and the connections that it wraps that is a T.
func Within[T any](conn net.Conn) (is T, ok bool) {
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

// Vanished reports whether the peer's kernel answers no more: what was sent,
// or the question whether it has room again, was repeated in vain. known is
// false where that can't be told.
func Vanished(tcp *net.TCPConn) (gone, known bool) {
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

// A Conn is a connection whose writes have a deadline each, which any
// progress moves on: a slow reader is waited for, one that takes nothing is cut
// off. Its methods are safe for concurrent use.
type Conn struct {
	net.Conn
	Carrier  *net.TCPConn // see [Carrier]
	tcp      *net.TCPConn // nil if it isn't plain TCP
	to       net.Conn     // Conn, without what sets deadlines
	patience time.Duration
	heard    atomic.Int64 // when something was read, in Unix nanoseconds
	writing  sync.Mutex   // held during a message, also while it waits for its peer
	last     bool         // nothing more is written; guarded by writing

	mu  sync.Mutex // guards end, and the setting of write deadlines
	end time.Time  // no write takes longer; zero: no end
}

// WritePiece is how much is written with one deadline at most.
const WritePiece = 16 << 10

// unsent is how many bytes the kernel takes for a peer beyond what is on its
// way: without this bound a stalled one holds megabytes there.
const unsent = 128 << 10

// BoundUnsent bounds what the kernel takes for a peer beyond what is on its way.
func BoundUnsent(tcp *net.TCPConn) {
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent) // older kernels hold more
		})
	}
}

func guard(conn net.Conn, patience time.Duration) *Conn {
	c := &Conn{Conn: conn, Carrier: Carrier(conn), tcp: TCP(conn), to: conn, patience: patience}
	if below, ok := Within[encrypted](conn); ok {
		c.to, _ = below.(net.Conn)
	}
	if c.Carrier != nil {
		BoundUnsent(c.Carrier)
	}
	c.heard.Store(time.Now().UnixNano())
	return c
}

// Quiet returns for how long nothing was heard from the peer.
func (c *Conn) Quiet() time.Duration { return time.Since(time.Unix(0, c.heard.Load())) }

// Read reads.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.heard.Store(time.Now().UnixNano())
	}
	return n, err
}

// Hurry gives all writes, also the one that waits, so long from now.
func (c *Conn) Hurry(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end = time.Now().Add(d)
	_ = c.SetWriteDeadline(c.end) // an error is one of a closed connection
}

// extend gives the next write its time.
func (c *Conn) extend() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	deadline := time.Now().Add(c.patience)
	if !c.end.IsZero() && deadline.After(c.end) {
		deadline = c.end
	}
	return c.SetWriteDeadline(deadline)
}

// Write writes p.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.WriteAll(net.Buffers{p})
	return int(n), err
}

// WriteLast writes p and nothing after it: later writes fail with net.ErrClosed. The library
// answers a peer's close frame, also when that was the answer to ours: a browser that gets two
// reports neither code nor reason.
func (c *Conn) WriteLast(p []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.writeAll(net.Buffers{p})
	c.last = true
	return err
}

// WriteAll writes the buffers as one piece.
func (c *Conn) WriteAll(buffers net.Buffers) (int64, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.writeAll(buffers)
}

// writeAll is WriteAll; its caller holds writing.
func (c *Conn) writeAll(buffers net.Buffers) (int64, error) {
	if c.last {
		return 0, net.ErrClosed
	}
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

// writePieces is for what can't say how much of a late write was taken. Short buffers
// are written together: each write is a record of TLS, and a call of the kernel.
func (c *Conn) writePieces(buffers net.Buffers) (int64, error) {
	written := int64(0)
	write := func(piece []byte) error {
		if err := c.extend(); err != nil {
			return err
		}
		n, err := c.to.Write(piece)
		written += int64(n)
		return err
	}
	all := 0
	for _, buffer := range buffers {
		all += len(buffer)
	}
	joined := make([]byte, 0, min(all, WritePiece))
	for _, buffer := range buffers {
		for len(buffer) > 0 {
			n := min(len(buffer), WritePiece-len(joined))
			joined = append(joined, buffer[:n]...)
			buffer = buffer[n:]
			if len(joined) == WritePiece {
				if err := write(joined); err != nil {
					return written, err
				}
				joined = joined[:0]
			}
		}
	}
	if len(joined) == 0 {
		return written, nil
	}
	return written, write(joined)
}

// A Hijacker hands a guarded connection to whom takes one over.
type Hijacker struct {
	http.ResponseWriter
	Patience time.Duration // of each write
	Conn     *Conn         // nil until it was taken over
}

// Hijack implements http.Hijacker.
func (h *Hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if hijacked, ok := conn.(interface{ Hijacked() }); ok {
		hijacked.Hijacked()
	}
	h.Conn = guard(conn, h.Patience)
	return h.Conn, bufio.NewReadWriter(buffered.Reader, bufio.NewWriterSize(h.Conn, 512)), nil
}
