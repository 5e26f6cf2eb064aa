package floors

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/rockpool/rockpool/test/bench/socket"
)

// dialTest opens a socket to a server with one handler.
func dialTest(t *testing.T, handler http.HandlerFunc, query string) *socket.Conn {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	conn, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(server.URL, "http")+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	k := socket.New(conn)
	t.Cleanup(k.Close)
	return k
}

// TestOnlyBytesThatArriveCount, not those that were to be printed.
func TestOnlyBytesThatArriveCount(t *testing.T) {
	for size, complete := range map[int]bool{3000: true, 2999: false, 3001: false} {
		err := dialTest(t, serveSocket, "/?size=1000&messages=3").DrainSize(t.Context(), size)
		if complete && err != nil || !complete && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("3000 bytes of %d: %v", size, err)
		}
	}
	const message = `{"id":"1","type":"next","payload":{"data":{"executionEvents":{"__typename":"ExecutionOutput","text":"01\\n23\\n"}}}}`
	lost := dialTest(t, func(w http.ResponseWriter, r *http.Request) {
		conn, err := accept(w, r)
		if err != nil {
			return
		}
		defer conn.CloseNow()
		for _, text := range []string{strings.ReplaceAll(message, "ExecutionOutput", "ExecutionOutputLost"), string(lastMessage)} {
			_ = conn.Write(context.Background(), websocket.MessageText, []byte(text))
		}
		_, _, _ = conn.Read(r.Context())
	}, "/")
	if err := lost.Drain(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "lost") {
		t.Errorf("lost output: got %v, want an error about it", err)
	}
}

// TestFloorsPiecesLookLikeAProgramsOutput: they have the same length, and each begins with the time
// when it was sent.
func TestFloorsPiecesLookLikeAProgramsOutput(t *testing.T) {
	if piece := string(pacePiece(time.Unix(1700000000, 123))); len(piece) != paceBytes || !strings.HasPrefix(piece, "at=1700000000000000123;.") {
		t.Errorf("%d bytes: %.40q", len(piece), piece)
	}
}
