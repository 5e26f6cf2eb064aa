package secure

import (
	"net/http"
	"time"

	"github.com/rockpool/rockpool/graph/transport/socket"
)

// Bounds of an HTTP/2 connection. A client of HTTP/1 has one request on a connection at a
// time; see peers.Peers for what a further one counts. net/http keeps four times as many requests
// as streams that were begun and cancelled, which nothing counts: with 20 streams, 1,000 connections
// that did so took more memory than a server of 512 MiB has.
const (
	streams       = 10
	streamBuffer  = 128 << 10 // of a body that comes faster than it is read
	connBuffer    = 256 << 10 // of all together
	frame         = 16 << 10  // the least that the protocol allows
	pingAfter     = 15 * time.Second
	pingWithin    = 15 * time.Second
	writePiece    = 16 << 10
	takenPatience = 2 * time.Minute // as for connections
)

// Configure makes a server speak HTTP/2, within bounds, with clients of a [Listener]. All of the
// server's listeners must be of this type.
func Configure(server *http.Server) {
	var both http.Protocols
	both.SetHTTP1(true)
	// net/http looks for HTTP/2 in what a Conn has decrypted. A Conn ensures that the handshake
	// has chosen it.
	both.SetUnencryptedHTTP2(true)
	server.Protocols = &both
	server.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams: streams, MaxReadFrameSize: frame,
		MaxReceiveBufferPerStream: streamBuffer, MaxReceiveBufferPerConnection: connBuffer,
		SendPingTimeout: pingAfter, PingTimeout: pingWithin,
	}
}

// Handler serves requests of a [Listener] with next, and sets their TLS. It cuts off an answer by
// HTTP/2 of which the client takes nothing for two minutes. The deadline of the connection doesn't:
// the client may take other answers.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, encrypted := socket.Within[*Conn](socket.Of(r.Context()))
		if !encrypted {
			next.ServeHTTP(w, r)
			return
		}
		state := conn.State()
		r.TLS = &state // each request is its own
		if r.ProtoMajor != 2 {
			next.ServeHTTP(w, r)
			return
		}
		patient := &patientWriter{ResponseWriter: w, control: http.NewResponseController(w)}
		defer patient.extend() // for what net/http writes afterwards
		next.ServeHTTP(patient, r)
	})
}

// A patientWriter gives each piece of an answer its time.
type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

// Unwrap is for http.ResponseController.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *patientWriter) extend() { _ = w.control.SetWriteDeadline(time.Now().Add(takenPatience)) }

// Write writes p piece by piece.
func (w *patientWriter) Write(p []byte) (int, error) {
	defer func() { _ = w.control.SetWriteDeadline(time.Time{}) }() // else the answer would end while nothing is written
	for written := 0; ; {
		w.extend()
		n, err := w.ResponseWriter.Write(p[written:min(len(p), written+writePiece)])
		written += n
		if err != nil || written == len(p) {
			return written, err
		}
	}
}
