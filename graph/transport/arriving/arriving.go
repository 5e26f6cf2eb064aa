// Package arriving reads the bodies of requests while they come. It bounds how long a client may send nothing, and how long
// a whole body may take. A body that is refused is read on for a while: then the client gets its answer, and the connection
// doesn't stay.
package arriving

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/rockpool/rockpool/graph/transport/peers"
	"github.com/rockpool/rockpool/runtime"
)

const (
	// DefaultSilence is how long a client may send nothing of a body. It is below the agent's 60 s.
	DefaultSilence = 30 * time.Second
	// MaxTime is how long a body, or a WebSocket's message, may take to arrive.
	MaxTime = 5 * time.Minute
	// restTime is how long a body is read that nobody wants any more. A client that is
	// still sending doesn't read. Closing the connection then would discard the answer.
	restTime = 5 * time.Second
)

// A Body is one that is read while it comes. A peer that sends nothing for
// silence is given up; else it may take its time. It is for one goroutine at a time.
type Body struct {
	body    io.Reader
	size    int64 // as announced; -1: it isn't
	control *http.ResponseController
	header  http.Header
	silence time.Duration
	end     time.Time // of all that is read; zero: none
	set     time.Time // when the connection's deadline was set; zero: it has none
	err     error     // of the last read
	http1   bool
	asks    bool // the peer sends nothing before the first read
}

// New returns the body of a request that w answers.
func New(w http.ResponseWriter, r *http.Request, silence time.Duration) *Body {
	return &Body{body: r.Body, size: r.ContentLength, control: http.NewResponseController(w), header: w.Header(), silence: silence, http1: r.ProtoMajor < 2, asks: r.Header.Get("Expect") != ""}
}

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// Buffered returns a reader for multipart, which reads little at a time, and not
// all the time.
func (b *Body) Buffered() *bufio.Reader {
	return bufio.NewReaderSize(readFunc(func(p []byte) (int, error) {
		defer b.pause()
		return b.Read(p)
	}), 64<<10)
}

// Until bounds all that is read from now on. Zero: it isn't bounded.
func (b *Body) Until(end time.Time) { b.end = end }

// Whole reads all of the body, at most limit bytes, within MaxTime. It takes memory of h as bytes arrive; see
// [peers.Hold.Read]. It returns peers.ErrTooLong, without reading if the announced length is over limit;
// QUOTA_EXCEEDED; LIMIT_EXCEEDED for a body that is late; or INVALID_INPUT for one that broke off.
func (b *Body) Whole(h *peers.Hold, limit int64) ([]byte, error) {
	if b.size > limit {
		b.err = peers.ErrTooLong // what follows would have to be read
		return nil, b.err
	}
	b.Until(time.Now().Add(MaxTime))
	text, err := h.Read(b, b.size, limit)
	switch {
	case err == nil:
		b.pause()
		return text, nil
	case errors.Is(err, peers.ErrTooLong):
		return nil, err
	}
	return nil, b.broken(err, "the body broke off")
}

// Read reads from the peer.
func (b *Body) Read(p []byte) (int, error) {
	b.asks = false
	// A deadline for each read would cost more than the reads of a small body.
	if now := time.Now(); now.Sub(b.set) >= min(time.Second, b.silence/4) {
		deadline := now.Add(b.silence)
		if !b.end.IsZero() && b.end.Before(deadline) {
			deadline = b.end
		}
		_ = b.control.SetReadDeadline(deadline) // a writer without deadlines is a test's
		b.set = now
	}
	n, err := b.body.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = runtime.Errorf(runtime.CodeLimitExceeded, "nothing of the request came for %s, or it (with files: its beginning) took longer than %s: send it again", b.silence, MaxTime)
	}
	b.err = err
	return n, err
}

// pause says that nothing is read for a while: a deadline would end the connection.
func (b *Body) pause() {
	_ = b.control.SetReadDeadline(time.Time{})
	b.set = time.Time{}
}

// BrokenOff is the error for a request whose parts can't be read on.
func (b *Body) BrokenOff(err error) error {
	return b.broken(err, "the request broke off, or isn't multipart/form-data as its boundary says")
}

// broken is the error for a body that can't be read on; message, unless err or that of the last read says more.
func (b *Body) broken(err error, message string) error {
	var typed *runtime.Error
	if errors.As(b.err, &typed) || errors.As(err, &typed) {
		return typed
	}
	return runtime.Wrap(runtime.CodeInvalidInput, err, "%s", message)
}

// BoundUnread gives a body that next doesn't read restTime to arrive: net/http waits
// for it without end, before and after the answer. A Body sets deadlines of its own.
func BoundUnread(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 { // -1: of unknown length
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(restTime)) // a writer without deadlines is a test's
		}
		next.ServeHTTP(w, r)
	})
}

// Rest reads the rest of the body, for a while, so that the client gets the
// answer that is written next. What takes longer costs the connection.
func (b *Body) Rest() {
	if b.err == nil && !b.asks {
		b.end = time.Now().Add(min(restTime, b.silence))
		b.set = time.Time{}
		_, _ = io.Copy(io.Discard, readFunc(b.Read)) // b.err says how it went
	}
	if !errors.Is(b.err, io.EOF) {
		if b.http1 { // in HTTP/2 it would close the connection of the client's other requests
			b.header.Set("Connection", "close")
		}
		_ = b.control.SetReadDeadline(time.Now()) // else the server would read on, without end
	} else if !b.set.IsZero() {
		b.pause()
	}
}
