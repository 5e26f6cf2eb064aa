package connections

import (
	"net/http"
	"time"
)

// Limits of an HTTP/2 connection. HTTP/1 has one request per connection at a time; clients.Limiter
// counts further ones. net/http keeps up to four times as many started and cancelled requests as
// streams, which nothing counts. With 20 streams, 1,000 such connections took more memory than a
// server with 512 MiB has.
const (
	streams      = 10
	streamBuffer = 128 << 10 // of a body that arrives faster than it is read
	connBuffer   = 256 << 10 // of all streams
	frame        = 16 << 10  // the protocol's minimum
	pingAfter    = 15 * time.Second
	pingWithin   = 15 * time.Second
)

// Configure enables HTTP/2, with limits, for clients of a TLS listener. All listeners of the
// server must be of this kind.
func Configure(server *http.Server) {
	var both http.Protocols
	both.SetHTTP1(true)
	// net/http looks for HTTP/2 in the decrypted bytes of a connection. A tlsConn ensures that the
	// handshake has chosen it.
	both.SetUnencryptedHTTP2(true)
	server.Protocols = &both
	server.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams: streams, MaxReadFrameSize: frame,
		MaxReceiveBufferPerStream: streamBuffer, MaxReceiveBufferPerConnection: connBuffer,
		SendPingTimeout: pingAfter, PingTimeout: pingWithin,
	}
}
