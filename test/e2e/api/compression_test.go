package api

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"

	"github.com/coder/websocket"
)

// TestE2ENothingIsCompressed, also for a client that accepts it. A compressor would hold back what
// a program prints.
func TestE2ENothingIsCompressed(t *testing.T) {
	b := bed.Open(t)
	conn, response, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(b.Address, "http")+"/graphql",
		&websocket.DialOptions{Subprotocols: []string{"graphql-transport-ws"}, CompressionMode: websocket.CompressionContextTakeover})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if offered := response.Request; offered != nil && !strings.Contains(offered.Header.Get("Sec-WebSocket-Extensions"), "permessage-deflate") {
		t.Errorf("the client offered %q", offered.Header)
	}
	if got := response.Header.Get("Sec-WebSocket-Extensions"); got != "" {
		t.Errorf("WebSocket: the server takes %q, want \"\"", got)
	}
	x := b.Run(t, object{"runnerId": b.Claim(t, "shell"), "shell": "yes | head -c 100000"})
	requests := map[string]struct{ accept, query string }{
		"SSE":  {"text/event-stream", `subscription($id: ID!) { executionEvents(executionId: $id) { __typename ... on ExecutionOutput { text } } }`},
		"POST": {"application/json", `query($id: ID!) { execution(id: $id) { output { chunks { text } } } }`},
	}
	for transport, r := range requests {
		body, err := json.Marshal(object{"query": r.query, "variables": object{"id": x.Id}})
		if err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.Address+"/graphql", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Accept", r.accept)
		request.Header.Set("Accept-Encoding", "gzip, deflate, br, zstd") // Go doesn't decompress if the header is set explicitly
		request.Close = true
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if encoding := response.Header.Get("Content-Encoding"); err != nil || encoding != "" || response.StatusCode != http.StatusOK || strings.Count(string(text), `\n`) != 50_000 {
			t.Errorf("%s: %s, Content-Encoding %q, %d bytes, %v", transport, response.Status, encoding, len(text), err)
		}
	}
}
