package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"
)

// A Client is the server's side of a bridge. Its methods are safe for concurrent
// use.
type Client struct {
	session *yamux.Session
	guard   *guard
}

// NewClient returns the client of the bridge at the other end of stream, where Serve runs or will
// run. The client owns stream. Its Close must end a blocked Read and Write.
//
// The peer may be hostile. It can't make the client hold more than 256 KiB for each stream that the
// client opened.
func NewClient(stream io.ReadWriteCloser) (*Client, error) { return newClient(stream, usual) }

func newClient(stream io.ReadWriteCloser, p patience) (*Client, error) {
	g := &guard{stream: stream}
	session, err := yamux.Client(joinedStream{g, &joiner{to: stream}}, p.config(true))
	if err != nil {
		_ = stream.Close()
		return nil, err
	}
	return &Client{session: session, guard: g}, nil
}

// Dial opens a stream to the agent. It doesn't wait for the agent: if no agent listens, the
// stream's first Read returns ErrNoAgent. The error of Dial is ErrBroken or the context's cause.
func (c *Client) Dial(ctx context.Context) (net.Conn, error) {
	type opened struct {
		stream *yamux.Stream
		err    error
	}
	done := make(chan opened, 1)
	go func() { // ends within patience.silence, since OpenStream has that timeout
		stream, err := c.session.OpenStream()
		done <- opened{stream, err}
	}()
	select {
	case o := <-done:
		if o.err != nil {
			return nil, c.broken(o.err)
		}
		return &conn{Stream: o.stream, client: c}, nil
	case <-ctx.Done():
		go func() { // ends after the goroutine above
			if o := <-done; o.err == nil {
				_ = o.stream.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// Done returns a channel that is closed when the bridge broke or was closed.
func (c *Client) Done() <-chan struct{} { return c.session.CloseChan() }

// Err returns why, once Done is closed. ErrBroken is in its chain.
func (c *Client) Err() error { return c.broken(nil) }

// Close ends the bridge and all its streams.
func (c *Client) Close() error { return c.session.Close() }

// broken returns ErrBroken with the most specific reason that is known.
func (c *Client) broken(err error) error {
	if reason := c.guard.failed.Load(); reason != nil {
		err = *reason
	}
	if err == nil || errors.Is(err, yamux.ErrSessionShutdown) {
		return ErrBroken
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %v", ErrBroken, err) //nolint:errorlint // the context of the underlying stream; callers would take it for their own
	}
	return fmt.Errorf("%w: %w", ErrBroken, err)
}

// A conn is a stream to the agent. It implements net.Conn.
type conn struct {
	*yamux.Stream
	client *Client
	closed atomic.Bool

	mu       sync.Mutex // guards answered and failure; held by the Read that waits for the bridge's answer
	answered bool
	failure  error
}

func (c *conn) Read(b []byte) (int, error) {
	if err := c.answer(); err != nil {
		return 0, err
	}
	n, err := c.Stream.Read(b)
	return n, c.translate(err)
}

// answer reads the byte with which the bridge begins the stream, once.
func (c *conn) answer() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answered {
		return c.failure
	}
	var first [1]byte
	if _, err := io.ReadFull(c.Stream, first[:]); err != nil {
		// A session that ends closes its streams too, which violates nothing.
		if err == io.EOF && !c.client.session.IsClosed() {
			err = errors.New("it closed a stream without an answer")
			c.answered, c.failure = true, fmt.Errorf("%w: %w", ErrBroken, err)
			return c.failure
		}
		return c.translate(err)
	}
	c.answered = true
	switch first[0] {
	case connected:
	case noAgent:
		reason, _ := io.ReadAll(io.LimitReader(c.Stream, maxReason))
		c.failure = fmt.Errorf("%w: %q", ErrNoAgent, strings.ToValidUTF8(string(reason), "?"))
	default:
		c.failure = fmt.Errorf("%w: it answered with the unknown code %d", ErrBroken, first[0])
	}
	return c.failure
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Stream.Write(b)
	return n, c.translate(err)
}

// Close implements net.Conn. A blocked Read or Write ends.
func (c *conn) Close() error {
	c.closed.Store(true)
	err := c.Stream.Close()
	_ = c.Stream.SetReadDeadline(time.Unix(1, 0)) // yamux allows reads after its own Close; end them
	return c.translate(err)
}

// translate converts yamux's errors to those of a net.Conn. It also hides that a session that ends
// closes its streams as if the peer had done so.
func (c *conn) translate(err error) error {
	switch {
	case err == nil:
		return nil
	case c.closed.Load():
		return net.ErrClosed
	case errors.Is(err, yamux.ErrTimeout):
		return os.ErrDeadlineExceeded
	case c.client.session.IsClosed():
		return c.client.broken(nil)
	case errors.Is(err, yamux.ErrConnectionWriteTimeout), errors.Is(err, yamux.ErrConnectionReset):
		return c.client.broken(err)
	default:
		return err
	}
}
