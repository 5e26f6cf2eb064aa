package secure

import (
	"net/http"
	"time"

	"github.com/rockpool/rockpool/clients/socket"
)

// Limits of an HTTP/2 connection. HTTP/1 has one request per connection at a time; clients.Limiter
// counts further ones. net/http keeps up to four times as many started and cancelled requests as
// streams, which nothing counts. With 20 streams, 1,000 such connections took more memory than a
// server with 512 MiB has.
const (
	streams       = 10
	streamBuffer  = 128 << 10 // of a body that arrives faster than it is read
	connBuffer    = 256 << 10 // of all streams
	frame         = 16 << 10  // the protocol's minimum
	pingAfter     = 15 * time.Second
	pingWithin    = 15 * time.Second
	writePiece    = 16 << 10
	takenPatience = 2 * time.Minute // same as for connections
)

// Configure enables HTTP/2, with limits, for clients of a [Listener]. All listeners of the server
// must be of this type.
func Configure(server *http.Server) {
	var both http.Protocols
	both.SetHTTP1(true)
	// net/http looks for HTTP/2 in the decrypted bytes of a Conn. The Conn ensures that the
	// handshake has chosen it.
	both.SetUnencryptedHTTP2(true)
	server.Protocols = &both
	server.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams: streams, MaxReadFrameSize: frame,
		MaxReceiveBufferPerStream: streamBuffer, MaxReceiveBufferPerConnection: connBuffer,
		SendPingTimeout: pingAfter, PingTimeout: pingWithin,
	}
}

// Handler returns a handler that serves requests of a [Listener] with next, and sets their TLS
// state. It aborts an HTTP/2 response if the client reads nothing of it for two minutes. The
// connection's deadline can't do that, because the client may read other responses.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, encrypted := socket.Within[*Conn](socket.Of(r.Context()))
		if !encrypted {
			next.ServeHTTP(w, r)
			return
		}
		state := conn.State()
		r.TLS = &state // each request has its own copy
		if r.ProtoMajor != 2 {
			next.ServeHTTP(w, r)
			return
		}
		patient := &patientWriter{ResponseWriter: w, control: http.NewResponseController(w)}
		defer patient.extend() // for data that net/http writes afterwards
		next.ServeHTTP(patient, r)
	})
}

// A patientWriter sets a deadline for each piece of a response.
type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

// Unwrap returns the underlying writer, for http.ResponseController.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// extend sets the deadline for the next piece.
func (w *patientWriter) extend() { _ = w.control.SetWriteDeadline(time.Now().Add(takenPatience)) }

// Write writes p in pieces, each with its own deadline.
func (w *patientWriter) Write(p []byte) (int, error) {
	defer func() { _ = w.control.SetWriteDeadline(time.Time{}) }() // otherwise the response would end while nothing is written
	for written := 0; ; {
		w.extend()
		n, err := w.ResponseWriter.Write(p[written:min(len(p), written+writePiece)])
		written += n
		if err != nil || written == len(p) {
			return written, err
		}
	}
}
