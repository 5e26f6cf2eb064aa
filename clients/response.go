package clients

import (
	"crypto/tls"
	"io"
	"net/http"
	"time"
)

// encrypted sets the TLS state of a request, if its connection has one. It returns the writer for the
// response, and a function to call at its end. The writer aborts an HTTP/2 response if the client reads
// nothing of it for two minutes. The connection's deadline can't do that, because the client may read
// other responses.
func encrypted(w http.ResponseWriter, r *http.Request) (_ http.ResponseWriter, end func()) {
	conn, is := Within[interface{ State() tls.ConnectionState }](ConnOf(r.Context()))
	if !is {
		return w, func() {}
	}
	state := conn.State()
	r.TLS = &state // each request has its own copy
	if r.ProtoMajor != 2 {
		return w, func() {}
	}
	writer := &deadlineWriter{ResponseWriter: w, control: http.NewResponseController(w)}
	return writer, writer.extend // for data that net/http writes afterwards
}

const takenPatience = 2 * time.Minute // same as for connections

// A deadlineWriter sets a deadline for each piece of a response.
type deadlineWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

// Unwrap returns the underlying writer, for http.ResponseController.
func (w *deadlineWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *deadlineWriter) extend() { _ = w.control.SetWriteDeadline(time.Now().Add(takenPatience)) }

// Write writes p in pieces, each with its own deadline.
func (w *deadlineWriter) Write(p []byte) (int, error) {
	defer func() { _ = w.control.SetWriteDeadline(time.Time{}) }() // otherwise the response would end while nothing is written
	for written := 0; ; {
		w.extend()
		n, err := w.ResponseWriter.Write(p[written:min(len(p), written+WritePiece)])
		written += n
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// DefaultEarly is how long an answer may take before its head is sent. Proxies usually end a
// request of which nothing arrives for 60 s.
const DefaultEarly = 15 * time.Second

// Early calls work, which makes the answer to a request. If that takes longer than every, Early
// sends the head of an answer with status 200, and then one space per interval. White space may
// precede JSON. It returns whether it has sent the head: then only the body is left to write.
//
// Head sets the header before it is sent. Work must not use w, nor read the request's body.
func Early(w http.ResponseWriter, every time.Duration, head func(http.Header), work func()) (sent bool) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticks := time.NewTicker(every)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
			case <-end:
				return
			}
			if !sent {
				head(w.Header())
				w.WriteHeader(http.StatusOK)
				sent = true
			}
			if _, err := io.WriteString(w, " "); err != nil || http.NewResponseController(w).Flush() != nil {
				return // the client has left, which work learns from its context
			}
		}
	}()
	defer func() {
		close(end)
		<-ended
	}()
	work()
	return
}

// A Recorder records the status and the size of a response.
type Recorder struct {
	http.ResponseWriter
	Status int   // 0 until the response begins
	Bytes  int64 // of the body
}

// Unwrap supports http.ResponseController.
func (w *Recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *Recorder) WriteHeader(status int) {
	if w.Status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		w.Status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *Recorder) Write(p []byte) (int, error) {
	if w.Status == 0 {
		w.Status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(p)
	w.Bytes += int64(n)
	return n, err
}
