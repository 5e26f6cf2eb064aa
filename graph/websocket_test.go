package graph

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/rockpool/rockpool/graph/transport"
)

// A client is a minimal implementation of graphql-transport-ws.
type client struct {
	t    testing.TB
	conn *websocket.Conn
}

type message struct {
	ID      string          `json:"id,omitempty"`
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

func dial(t testing.TB, url string, header http.Header) (client, error) {
	t.Helper()
	conn, response, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(url, "http")+"/graphql",
		&websocket.DialOptions{HTTPHeader: header, Subprotocols: []string{transport.Subprotocol}})
	if err != nil {
		if response != nil && response.StatusCode != http.StatusForbidden {
			t.Errorf("refused with %s", response.Status)
		}
		return client{}, err
	}
	conn.SetReadLimit(1 << 20)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return client{t: t, conn: conn}, nil
}

func (c client) send(m message) {
	c.t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.conn.Write(c.t.Context(), websocket.MessageText, text); err != nil {
		c.t.Fatal(err)
	}
}

func (c client) receive(wantType string) message {
	c.t.Helper()
	_, text, err := c.conn.Read(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	var m message
	if err := json.Unmarshal(text, &m); err != nil || !utf8.Valid(text) {
		c.t.Fatalf("%q: %v", text, err)
	}
	if m.Type != wantType {
		c.t.Fatalf("got %s %s instead of %s", m.Type, m.Payload, wantType)
	}
	return m
}

func (c client) open(query string) {
	c.t.Helper()
	c.send(message{Type: "connection_init"})
	c.receive("connection_ack")
	payload, _ := json.Marshal(map[string]any{"query": query})
	c.send(message{ID: "1", Type: "subscribe", Payload: payload})
}

// The version is an example for any string, because all use one marshaller.
func TestInvalidBytesLeaveTheWebSocketOpen(t *testing.T) {
	url, _ := served(t, site{Version: "a\xffb"})
	c, err := dial(t, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.open("{ version }")
	if got := c.receive("next"); string(got.Payload) != `{"data":{"version":"a�b"}}` {
		t.Errorf("got %s", got.Payload)
	}
	c.receive("complete")
	c.send(message{Type: "ping"})
	c.receive("pong")
}

func TestErrorsOverAWebSocketAreTyped(t *testing.T) {
	url, _ := served(t, site{})
	c, err := dial(t, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.open("{ versions }")
	if got := string(c.receive("error").Payload); !strings.Contains(got, `"code":"INVALID_INPUT"`) {
		t.Errorf("got %s", got)
	}
}

func TestOtherSubprotocolsAreRefused(t *testing.T) {
	url, _ := served(t, site{})
	for _, offered := range [][]string{nil, {"graphql-ws"}} {
		_, response, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(url, "http")+"/graphql", &websocket.DialOptions{Subprotocols: offered})
		if err == nil || response.StatusCode != http.StatusBadRequest {
			t.Errorf("%v: %v %v", offered, response.Status, err)
		}
	}
	conn, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(url, "http")+"/graphql",
		&websocket.DialOptions{Subprotocols: []string{"graphql-ws", transport.Subprotocol}})
	if err != nil || conn.Subprotocol() != transport.Subprotocol {
		t.Fatalf("%v", err)
	}
	_ = conn.CloseNow()
}
