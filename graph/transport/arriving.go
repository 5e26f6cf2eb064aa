package transport

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// arriving is a body that is read while it comes. A peer that sends nothing for
// silence is given up; else it may take its time.
type arriving struct {
	body    io.Reader
	control *http.ResponseController
	header  http.Header
	silence time.Duration
	end     time.Time // of all that is read; zero: none
	set     time.Time // when the connection's deadline was set; zero: it has none
	err     error     // of the last read
	asks    bool      // the peer sends nothing before the first read
}

func newArriving(w http.ResponseWriter, r *http.Request, silence time.Duration) *arriving {
	return &arriving{body: r.Body, control: http.NewResponseController(w), header: w.Header(), silence: silence, asks: r.Header.Get("Expect") != ""}
}

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// buffered returns a reader for multipart, which reads little at a time, and not
// all the time.
func (a *arriving) buffered() *bufio.Reader {
	return bufio.NewReaderSize(readFunc(func(p []byte) (int, error) {
		defer a.pause()
		return a.Read(p)
	}), 64<<10)
}

// until bounds all that is read from now on.
func (a *arriving) until(end time.Time) { a.end = end }

// Read reads from the peer. Pause ends a series of reads.
func (a *arriving) Read(p []byte) (int, error) {
	a.asks = false
	// A deadline for each read would cost more than the reads of a small body.
	if now := time.Now(); now.Sub(a.set) >= min(time.Second, a.silence/4) {
		deadline := now.Add(a.silence)
		if !a.end.IsZero() && a.end.Before(deadline) {
			deadline = a.end
		}
		_ = a.control.SetReadDeadline(deadline) // a writer without deadlines is a test's
		a.set = now
	}
	n, err := a.body.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = runtime.Errorf(runtime.CodeLimitExceeded, "nothing of the request came for %s, or its beginning took longer than %s: send it again", a.silence, bodyTime)
	}
	a.err = err
	return n, err
}

// pause says that nothing is read for a while: a deadline would end the connection.
func (a *arriving) pause() {
	_ = a.control.SetReadDeadline(time.Time{})
	a.set = time.Time{}
}

// brokenOff is the error for a request whose parts can't be read on.
func (a *arriving) brokenOff(err error) error {
	return a.broken(err, "the request broke off, or isn't multipart/form-data as its boundary says")
}

// broken is the error for a body that can't be read on; message, unless err or that of the last read says more.
func (a *arriving) broken(err error, message string) error {
	var typed *runtime.Error
	if errors.As(a.err, &typed) || errors.As(err, &typed) {
		return typed
	}
	return runtime.Wrap(runtime.CodeInvalidInput, err, "%s", message)
}

// restTime is how long a body is read that nobody wants any more. A client that is
// still sending doesn't read. Closing the connection then would discard the answer.
const restTime = 5 * time.Second

// BoundUnread gives a body that next doesn't read restTime to arrive: net/http waits
// for it without end, before and after the answer. Transports that read one set
// deadlines of their own.
func BoundUnread(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 { // -1: of unknown length
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(restTime)) // a writer without deadlines is a test's
		}
		next.ServeHTTP(w, r)
	})
}

// rest reads the rest of the body, for a while, so that the client gets its
// answer. What takes longer costs the connection.
func (a *arriving) rest() {
	if a.err == nil && !a.asks {
		a.end = time.Now().Add(min(restTime, a.silence))
		a.set = time.Time{}
		_, _ = io.Copy(io.Discard, readFunc(a.Read)) // a.err says how it went
	}
	if !errors.Is(a.err, io.EOF) {
		a.header.Set("Connection", "close")
		_ = a.control.SetReadDeadline(time.Now()) // else the server would read on, without end
	} else if !a.set.IsZero() {
		a.pause()
	}
}
