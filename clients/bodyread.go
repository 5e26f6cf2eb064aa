package clients

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

const (
	// DefaultSilence is how long a client may send nothing of a body. It is below the agent's 60
	// s.
	DefaultSilence = 30 * time.Second
	// MaxBodyTime is the longest time that a body, or a message of a WebSocket, may take to arrive.
	MaxBodyTime = 5 * time.Minute
	// restTime is how long the rest of an unneeded body is read. A client that is still sending
	// doesn't read: if the connection closed then, the response would be lost.
	restTime = 5 * time.Second
)

// A Body is a request's body, read while it arrives. A peer that sends nothing for silence loses
// its connection; otherwise there is no limit unless SetEnd sets one. Use it in one goroutine at a
// time.
type Body struct {
	body    io.Reader
	size    int64 // as announced; -1 means unknown
	control *http.ResponseController
	header  http.Header
	silence time.Duration
	end     time.Time // of all reads; the zero time means none
	set     time.Time // when the connection's deadline was last set; zero if it has none
	err     error     // of the last read
	http1   bool
	asks    bool // the peer sends nothing before the first read (Expect: 100-continue)
}

// NewBody returns the body of the request that w responds to.
func NewBody(w http.ResponseWriter, r *http.Request, silence time.Duration) *Body {
	return &Body{body: r.Body, size: r.ContentLength, control: http.NewResponseController(w), header: w.Header(), silence: silence, http1: r.ProtoMajor < 2, asks: r.Header.Get("Expect") != ""}
}

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// Buffered returns a reader for package multipart, which reads in small pieces, with pauses.
func (b *Body) Buffered() *bufio.Reader {
	return bufio.NewReaderSize(readFunc(func(p []byte) (int, error) {
		defer b.pause()
		return b.Read(p)
	}), 64<<10)
}

// SetEnd sets a limit for all later reads. The zero time means no limit.
func (b *Body) SetEnd(end time.Time) { b.end = end }

// ReadAll reads the whole body, at most limit bytes, within MaxBodyTime. It takes memory from h as bytes
// arrive; see [Reservation.Read].
//
// Errors: ErrTooLong, without reading if the announced length is over limit; QUOTA_EXCEEDED;
// LIMIT_EXCEEDED for a late body; INVALID_INPUT for an incomplete one.
func (b *Body) ReadAll(h *Reservation, limit int64) ([]byte, error) {
	if b.size > limit {
		b.err = ErrTooLong // the rest would have to be read
		return nil, b.err
	}
	b.SetEnd(time.Now().Add(MaxBodyTime))
	text, err := h.Read(b, b.size, limit)
	switch {
	case err == nil:
		b.pause()
		return text, nil
	case errors.Is(err, ErrTooLong):
		return nil, err
	}
	return nil, b.broken(err, "the body broke off")
}

// Read implements io.Reader.
func (b *Body) Read(p []byte) (int, error) {
	b.asks = false
	// Setting a deadline for each read would cost more than the reads of a small body.
	if now := time.Now(); now.Sub(b.set) >= min(time.Second, b.silence/4) {
		deadline := now.Add(b.silence)
		if !b.end.IsZero() && b.end.Before(deadline) {
			deadline = b.end
		}
		_ = b.control.SetReadDeadline(deadline) // writers without deadlines exist only in tests
		b.set = now
	}
	n, err := b.body.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = runtime.Errorf(runtime.CodeLimitExceeded, "the request stalled: no data of it arrived for %s. Send it again", b.silence)
		if !b.end.IsZero() && !time.Now().Before(b.end) {
			err = runtime.Errorf(runtime.CodeLimitExceeded, "the request (with files: the part before them) took longer than %s: send it again over a faster connection, or in parts", MaxBodyTime)
		}
	}
	b.err = err
	return n, err
}

// pause removes the deadline while nothing is read: it would end the connection.
func (b *Body) pause() {
	_ = b.control.SetReadDeadline(time.Time{})
	b.set = time.Time{}
}

// BrokenOff returns the error for a request whose next part can't be read.
func (b *Body) BrokenOff(err error) error {
	return b.broken(err, "the request broke off, or isn't multipart/form-data as its boundary says")
}

// broken returns the error for a body that can't be read: that of err or of the last read if it has
// a code, otherwise message.
func (b *Body) broken(err error, message string) error {
	var typed *runtime.Error
	if errors.As(b.err, &typed) || errors.As(err, &typed) {
		return typed
	}
	return runtime.Wrap(runtime.CodeInvalidInput, err, "%s", message)
}

// boundUnread limits the time for a body that a handler doesn't read to restTime. net/http waits for
// such a body without a limit, before and after the response. A Body sets its own deadlines.
func boundUnread(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 { // -1 means that the length is unknown
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(restTime)) // writers without deadlines exist only in tests
	}
}

// Drain reads the rest of the body for at most restTime, so that the client gets the response that
// is written next. If the rest takes longer, the connection ends.
func (b *Body) Drain() {
	if b.err == nil && !b.asks {
		b.end = time.Now().Add(min(restTime, b.silence))
		b.set = time.Time{}
		_, _ = io.Copy(io.Discard, readFunc(b.Read)) // b.err has the result
	}
	if !errors.Is(b.err, io.EOF) {
		if b.http1 { // in HTTP/2 it would close the connection of the client's other requests
			b.header.Set("Connection", "close")
		}
		_ = b.control.SetReadDeadline(time.Now()) // otherwise the server would read without a limit
	} else if !b.set.IsZero() {
		b.pause()
	}
}
