package clients

import (
	"crypto/tls"
	"net/http"
	"time"

	"github.com/rockpool/rockpool/clients/socket"
)

// encrypted sets the TLS state of a request, if its connection has one. It returns the writer for the
// response, and a function to call at its end. The writer aborts an HTTP/2 response if the client reads
// nothing of it for two minutes. The connection's deadline can't do that, because the client may read
// other responses.
func encrypted(w http.ResponseWriter, r *http.Request) (_ http.ResponseWriter, end func()) {
	conn, is := socket.Within[interface{ State() tls.ConnectionState }](socket.Of(r.Context()))
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
		n, err := w.ResponseWriter.Write(p[written:min(len(p), written+socket.WritePiece)])
		written += n
		if err != nil || written == len(p) {
			return written, err
		}
	}
}
