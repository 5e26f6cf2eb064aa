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
	*bufio.Reader // multipart reads little at a time
	body          io.Reader
	control       *http.ResponseController
	header        http.Header
	silence       time.Duration
	end           time.Time // of all that is read; zero: none
	err           error     // of the last read
	asks          bool      // the peer sends nothing before the first read
}

func newArriving(w http.ResponseWriter, r *http.Request, silence time.Duration) *arriving {
	a := &arriving{body: r.Body, control: http.NewResponseController(w), header: w.Header(), silence: silence, asks: r.Header.Get("Expect") != ""}
	a.Reader = bufio.NewReaderSize(readFunc(a.arrive), 64<<10)
	return a
}

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// until bounds all that is read from now on.
func (a *arriving) until(end time.Time) { a.end = end }

// arrive reads from the peer.
func (a *arriving) arrive(p []byte) (int, error) {
	a.asks = false
	deadline := time.Now().Add(a.silence)
	if !a.end.IsZero() && a.end.Before(deadline) {
		deadline = a.end
	}
	_ = a.control.SetReadDeadline(deadline) // a writer without deadlines is a test's
	n, err := a.body.Read(p)
	_ = a.control.SetReadDeadline(time.Time{}) // it would end the connection later
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = runtime.Errorf(runtime.CodeLimitExceeded, "nothing of the request came for %s, or its beginning took longer than %s: send it again", a.silence, bodyTime)
	}
	a.err = err
	return n, err
}

// brokenOff is the error for a request whose parts can't be read on.
func (a *arriving) brokenOff(err error) error {
	var typed *runtime.Error
	if errors.As(a.err, &typed) {
		return typed
	}
	return runtime.Wrap(runtime.CodeInvalidInput, err, "the request broke off, or isn't multipart/form-data as its boundary says")
}

// restTime is how long a body is read that nobody wants any more: a client that
// is sending reads no answer, and a connection that is closed meanwhile takes it
// along.
const restTime = 5 * time.Second

// rest reads the rest of the body, for a while, so that the client gets its
// answer. What takes longer costs the connection.
func (a *arriving) rest() {
	if a.err == nil && !a.asks {
		a.end = time.Now().Add(min(restTime, a.silence))
		_, _ = io.Copy(io.Discard, a.Reader) // a.err says how it went
	}
	if !errors.Is(a.err, io.EOF) {
		a.header.Set("Connection", "close")
		_ = a.control.SetReadDeadline(time.Now()) // else the server would read on, without end
	}
}
