package connections

import (
	"encoding/binary"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
)

// Types and flags of HTTP/2 frames; see RFC 9113.
const (
	headersFrame, resetFrame, settingsFrame, goAwayFrame = 1, 3, 4, 7
	maxConcurrentStreams                                 = 3
	enhanceYourCalm                                      = 11
)

func http2Frame(kind, flags byte, stream uint32, payload []byte) []byte {
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	frame = binary.BigEndian.AppendUint32(append(frame, flags), stream)
	return append(frame, payload...)
}

// TestResetRequestsEndTheirConnection: a client that starts requests and cancels them immediately
// has as many handlers as one that waits for responses, and four times as many waiting requests.
// That number bounds the memory of a flood.
func TestResetRequestsEndTheirConnection(t *testing.T) {
	const most = 10 // as docs/guides/securing.md says
	end := make(chan struct{})
	var handlers atomic.Int64
	b := serve(t, setup{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		handlers.Add(1)
		<-end
	}))
	defer close(end)
	conn := b.dial(t, "h2")
	sent := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), http2Frame(settingsFrame, 0, 0, nil)...)
	get := []byte{0x82, 0x87, 0x84, 0x41, 1, 'x'} // GET https://x/ by HPACK
	for i := range uint32(5*most + 2) {
		const endStream, endHeaders = 1, 4
		sent = append(sent, http2Frame(headersFrame, endStream|endHeaders, 2*i+1, get)...)
		sent = append(sent, http2Frame(resetFrame, 0, 2*i+1, make([]byte, 4))...)
	}
	if _, err := conn.Write(sent); err != nil {
		t.Fatal(err)
	}
	var head [9]byte
	for offered := uint32(0); ; {
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			t.Fatal("before the connection was ended for too many requests:", err)
		}
		payload := make([]byte, binary.BigEndian.Uint32(head[:])>>8)
		if _, err := io.ReadFull(conn, payload); err != nil {
			t.Fatal(err)
		}
		switch head[3] {
		case settingsFrame:
			for s := payload; len(s) >= 6; s = s[6:] {
				if binary.BigEndian.Uint16(s) == maxConcurrentStreams {
					offered = binary.BigEndian.Uint32(s[2:])
				}
			}
		case goAwayFrame:
			if code := binary.BigEndian.Uint32(payload[4:]); code != enhanceYourCalm || offered != most || handlers.Load() > most {
				t.Errorf("error %d, with %d streams offered and %d handlers", code, offered, handlers.Load())
			}
			return
		}
	}
}
