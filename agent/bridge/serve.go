package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"
)

const (
	firstPause = 2 * time.Millisecond // between two attempts to reach the agent
	copyBuffer = 32 << 10             // bytes; the maximum of each direction's buffer
)

// Serve connects each stream that the client at the other end of stream opens to a new connection
// of dial. It returns nil when stream has ended, an error if the client was silent for too long or
// violated the protocol, or ctx's cause. Before it returns it closes stream and all connections.
func Serve(ctx context.Context, stream io.ReadWriteCloser, dial func() (net.Conn, error)) error {
	return serve(ctx, stream, dial, usual)
}

func serve(ctx context.Context, stream io.ReadWriteCloser, dial func() (net.Conn, error), p patience) error {
	watched := newWatched(stream, p.keepAlive+p.silence)
	defer watched.timer.Stop()
	session, err := yamux.Server(struct {
		io.Reader
		io.Writer
		io.Closer
	}{watched, &joiner{to: stream}, stream}, p.config(false))
	if err != nil {
		_ = stream.Close()
		return err
	}
	s := &server{dial: dial, first: p.first}
	var carried sync.WaitGroup
	// The session closes first, which ends all streams.
	defer carried.Wait()
	defer func() { _ = session.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = session.Close() })
	defer stop()
	for {
		there, err := session.AcceptStream()
		switch {
		case err == nil:
			carried.Go(func() { s.carry(there) })
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case watched.late.Load():
			return fmt.Errorf("the server has been silent for %s", watched.most)
		case errors.Is(err, yamux.ErrInvalidVersion), errors.Is(err, yamux.ErrInvalidMsgType), errors.Is(err, yamux.ErrRecvWindowExceeded),
			errors.Is(err, yamux.ErrDuplicateStream), errors.Is(err, yamux.ErrUnexpectedFlag):
			return err // the peer isn't a client
		default:
			return nil // stream ended; an error of a write to a client that closed it means the same
		}
	}
}

// A server connects the streams of one bridge.
type server struct {
	dial    func() (net.Conn, error)
	first   time.Duration // how long connect retries before the agent was reached once
	reached atomic.Bool   // the agent has been reached once
}

// carry connects one stream, and returns when both directions have ended.
func (s *server) carry(there *yamux.Stream) {
	defer func() { _ = there.Close() }()
	here, err := s.connect()
	if err != nil {
		reason := err.Error()
		_, _ = there.Write(append([]byte{noAgent}, reason[:min(len(reason), maxReason)]...))
		return
	}
	defer func() { _ = here.Close() }()
	if _, err := there.Write([]byte{connected}); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		pipe(here, there)
		// The client closed the stream: nobody reads the agent's further output.
		_ = here.Close()
	})
	pipe(there, here)
	// The agent closed its side. All its bytes are written; report the end to the client.
	_ = there.Close()
	_ = there.SetReadDeadline(time.Unix(1, 0))
	both.Wait()
}

// pipe copies until either side ends. Its buffer starts at 2 KiB and grows, since most streams
// carry a few hundred bytes.
func pipe(to io.Writer, from io.Reader) {
	buffer := make([]byte, 2<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
		if n == len(buffer) && n < copyBuffer {
			buffer = make([]byte, min(4*n, copyBuffer))
		}
	}
}

// connect dials the agent. Until the agent was reached once, it retries for s.first.
func (s *server) connect() (net.Conn, error) {
	end := time.Now().Add(s.first)
	for {
		conn, err := s.dial()
		if err == nil {
			s.reached.Store(true)
		}
		if s.reached.Load() || time.Now().After(end) {
			return conn, err
		}
		<-time.After(firstPause)
	}
}

// watchedStream reads a stream, and closes it when no byte has arrived for too long.
type watchedStream struct {
	stream io.ReadWriteCloser
	most   time.Duration // longest time without a byte
	timer  *time.Timer
	late   atomic.Bool // set by the timer, before it closes stream
}

func newWatched(stream io.ReadWriteCloser, most time.Duration) *watchedStream {
	w := &watchedStream{stream: stream, most: most}
	w.timer = time.AfterFunc(most, func() {
		w.late.Store(true)
		_ = stream.Close()
	})
	return w
}

// Read implements io.Reader. Each byte begins a new period. After the timer has closed the stream
// it isn't started again.
func (w *watchedStream) Read(b []byte) (int, error) {
	n, err := w.stream.Read(b)
	if n > 0 && w.timer.Stop() {
		w.timer.Reset(w.most)
	}
	return n, err
}
