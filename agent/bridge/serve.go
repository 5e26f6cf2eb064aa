package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

const (
	firstPause = 2 * time.Millisecond // between two tries to reach the agent
	copyBuffer = 32 << 10
)

// Serve connects each stream that the client at the other end of stream opens to
// one that dial returns. It returns nil when stream has ended, an error when the
// client was silent or none, or ctx's cause; by then stream is closed, and what it
// carried.
func Serve(ctx context.Context, stream io.ReadWriteCloser, dial func() (net.Conn, error)) error {
	return serve(ctx, stream, dial, usual)
}

func serve(ctx context.Context, stream io.ReadWriteCloser, dial func() (net.Conn, error), p patience) error {
	watched := newWatched(stream, p.keepAlive+p.silence)
	defer watched.stop()
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
		case watched.silent():
			return fmt.Errorf("the server has been silent for %s", watched.most)
		case errors.Is(err, yamux.ErrInvalidVersion), errors.Is(err, yamux.ErrInvalidMsgType), errors.Is(err, yamux.ErrRecvWindowExceeded),
			errors.Is(err, yamux.ErrDuplicateStream), errors.Is(err, yamux.ErrUnexpectedFlag):
			return err // the client isn't one
		default:
			return nil // what a write to a client that has gone says is no news
		}
	}
}

type server struct {
	dial  func() (net.Conn, error)
	first time.Duration
	mu    sync.Mutex // guards met
	met   bool       // the agent was there
}

// carry connects one stream.
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
		// The client is gone, and nobody reads what the agent still says.
		_ = here.Close()
	})
	pipe(there, here)
	// The agent is gone: what it said is on its way, and then its end.
	_ = there.Close()
	_ = there.SetReadDeadline(time.Unix(1, 0))
	both.Wait()
}

// pipe copies until either ends. Most streams carry a few hundred bytes, so that
// the buffer grows with what is read.
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

// connect dials the agent.
func (s *server) connect() (net.Conn, error) {
	end := time.Now().Add(s.first)
	for {
		conn, err := s.dial()
		s.mu.Lock()
		s.met = s.met || err == nil
		met := s.met
		s.mu.Unlock()
		if err == nil || met || time.Now().After(end) {
			return conn, err
		}
		<-time.After(firstPause)
	}
}

// watched reads a stream, and closes it when nothing has come for too long.
type watched struct {
	stream io.ReadWriteCloser
	most   time.Duration
	timer  *time.Timer
	late   chan struct{} // closed when it was
}

func newWatched(stream io.ReadWriteCloser, most time.Duration) *watched {
	w := &watched{stream: stream, most: most, late: make(chan struct{})}
	w.timer = time.AfterFunc(most, func() {
		close(w.late)
		_ = stream.Close()
	})
	return w
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.stream.Read(b)
	if n > 0 && w.timer.Stop() {
		w.timer.Reset(w.most)
	}
	return n, err
}

func (w *watched) silent() bool {
	select {
	case <-w.late:
		return true
	default:
		return false
	}
}

func (w *watched) stop() { w.timer.Stop() }
