package clients

import (
	"bufio"
	"context"
	"encoding/binary"
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

// ConnContext is for http.Server: it makes a request's connection available through [ConnOf].
func ConnContext(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// ConnOf returns the connection of a request; nil if the server lacks ConnContext.
func ConnOf(ctx context.Context) net.Conn {
	conn, _ := ctx.Value(connKey{}).(net.Conn)
	return conn
}

// TCP returns the TCP connection that conn is, or to which conn only adds deadlines; nil if it
// isn't plain TCP.
func TCP(conn net.Conn) *net.TCPConn {
	tcp, _ := Within[*net.TCPConn](conn)
	return tcp
}

// An encrypted connection changes what is written to the one below it: tls.Conn, for example.
type encryptedConn interface{ NetConn() net.Conn }

// Carrier returns the TCP connection that carries conn, encrypted or not; nil if none does. Don't
// read from it or write to it.
func Carrier(conn net.Conn) *net.TCPConn {
	for {
		if tcp := TCP(conn); tcp != nil {
			return tcp
		}
		above, ok := Within[encryptedConn](conn)
		if !ok {
			return nil
		}
		conn = above.NetConn()
	}
}

// Within returns the first T among conn and the connections that it wraps.
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

// unanswered is how many unanswered retransmissions mean that a peer vanished: within 1.4 s on a
// fast network.
const unanswered = 3

// Vanished reports whether the peer's kernel no longer responds: it confirmed neither repeated data
// nor repeated window probes. known is false if that can't be found out.
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

// A GuardedConn is a connection with a deadline for each write, which any progress extends. So it waits
// for a slow reader, and ends the connection of one that reads nothing. It is safe for concurrent
// use.
type GuardedConn struct {
	net.Conn
	Carrier  *net.TCPConn // see [Carrier]
	tcp      *net.TCPConn // nil if it isn't plain TCP
	to       net.Conn     // Conn, without the wrapper that sets deadlines
	patience time.Duration
	opened   time.Time
	heard    atomic.Int64 // time of the last read, in nanoseconds since opened
	writing  sync.Mutex   // held during a message, also while it waits for its peer
	last     bool         // nothing more is written; guarded by writing

	mu  sync.Mutex // guards end, and the setting of write deadlines
	end time.Time  // of all writes; the zero time means none
}

// WritePiece is the largest write with one deadline, in bytes.
const WritePiece = 16 << 10

// unsent is how many unsent bytes the kernel accepts for a peer. Without this limit it holds
// megabytes for one that reads nothing.
const unsent = 128 << 10

// BoundUnsent limits the unsent bytes that the kernel accepts for a peer.
func BoundUnsent(tcp *net.TCPConn) {
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent) // older kernels hold more
		})
	}
}

// guard returns a GuardedConn with patience for each write, and limits the connection's unsent bytes.
func guard(conn net.Conn, patience time.Duration) *GuardedConn {
	c := &GuardedConn{Conn: conn, Carrier: Carrier(conn), tcp: TCP(conn), to: conn, patience: patience}
	if below, ok := Within[encryptedConn](conn); ok {
		c.to, _ = below.(net.Conn)
	}
	if c.Carrier != nil {
		BoundUnsent(c.Carrier)
	}
	c.opened = time.Now()
	return c
}

// Quiet returns the time since the last read from the peer.
func (c *GuardedConn) Quiet() time.Duration {
	return time.Since(c.opened) - time.Duration(c.heard.Load())
}

// Read implements net.Conn.
func (c *GuardedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.heard.Store(int64(time.Since(c.opened)))
	}
	return n, err
}

// LimitWrites ends all writes after d, including the present one.
func (c *GuardedConn) LimitWrites(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end = time.Now().Add(d)
	_ = c.SetWriteDeadline(c.end) // it fails only for a closed connection
}

func (c *GuardedConn) extend() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	deadline := time.Now().Add(c.patience)
	if !c.end.IsZero() && deadline.After(c.end) {
		deadline = c.end
	}
	return c.SetWriteDeadline(deadline)
}

// Write implements net.Conn.
func (c *GuardedConn) Write(p []byte) (int, error) {
	n, err := c.WriteAll(net.Buffers{p})
	return int(n), err
}

// WriteLast writes p and nothing after it: later writes fail with net.ErrClosed. Without it, the
// library would respond to a peer's close frame even if that was the response to ours. A browser
// that gets two close frames reports neither code nor reason.
func (c *GuardedConn) WriteLast(p []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.writeAll(net.Buffers{p})
	c.last = true
	return err
}

// WriteAll writes the buffers as one message.
func (c *GuardedConn) WriteAll(buffers net.Buffers) (int64, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.writeAll(buffers)
}

func (c *GuardedConn) writeAll(buffers net.Buffers) (int64, error) {
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
		// WriteTo removes the written bytes from buffers, so after a late write the loop continues
		// there.
		n, err := buffers.WriteTo(c.tcp)
		written += n
		if err == nil || n == 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return written, err
		}
	}
}

// writePieces is for connections that can't report how much of a late write was accepted. It joins
// short buffers, since each write is a TLS record and a system call.
func (c *GuardedConn) writePieces(buffers net.Buffers) (int64, error) {
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

// A Hijacker gives a guarded connection to a handler that takes over a connection.
type Hijacker struct {
	http.ResponseWriter
	Patience time.Duration // for each write
	Conn     *GuardedConn  // nil until it is taken over
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

// The first byte of a WebSocket's frames from a server (RFC 6455, section 5.2): whole messages,
// without a mask.
const (
	OpText  = 0x81
	OpClose = 0x88
	OpPing  = 0x89
	OpPong  = 0x8a
)

// Frame returns a frame.
func Frame(op byte, payload []byte) []byte {
	return append(AppendFrameHeader(nil, op, len(payload)), payload...)
}

// AppendFrameHeader appends the header of a frame with a payload of this size.
func AppendFrameHeader(to []byte, op byte, size int) []byte {
	switch {
	case size < 126:
		return append(to, op, byte(size))
	case size < 1<<16:
		return binary.BigEndian.AppendUint16(append(to, op, 126), uint16(size))
	default:
		return binary.BigEndian.AppendUint64(append(to, op, 127), uint64(size))
	}
}
