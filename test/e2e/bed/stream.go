package bed

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/rockpool/rockpool/client"
)

// A Cutter is a TCP proxy that cuts each connection after a random number of bytes.
type Cutter struct {
	Listener net.Listener
	target   string
	most     int64 // bytes to the client before a cut
	group    sync.WaitGroup
	Accepted atomic.Int64 // number of connections
}

// NewCutter relays connections to target, and cuts each after at most this many bytes. most must be
// well above the 44 kB of the largest event of an output. An event that no connection carries
// completely never arrives.
func NewCutter(t *testing.T, target string, most int64) *Cutter {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cutter{Listener: listener, target: target, most: most}
	c.group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			c.Accepted.Add(1)
			c.group.Go(func() { c.serve(t.Context(), conn) })
		}
	})
	t.Cleanup(func() { listener.Close(); c.group.Wait() })
	return c
}

func (c *Cutter) serve(ctx context.Context, client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", c.target)
	if err != nil {
		return
	}
	defer server.Close()
	// Clients keep idle connections longer than the test lasts.
	defer context.AfterFunc(ctx, func() { client.Close() })()
	c.group.Go(func() {
		_, _ = io.Copy(server, client)
		server.Close() // the client left
	})
	_, _ = io.CopyN(client, server, 1+rand.Int64N(c.most))
	_ = client.(*net.TCPConn).SetLinger(0) // a reset, not an orderly end
}

// StalledSubscriber subscribes over a socket with a small buffer and reads nothing.
func (p *Process) StalledSubscriber(t *testing.T, execution string) net.Conn {
	t.Helper()
	var raw net.Conn
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetReadBuffer(4 << 10)
		}
		raw = conn
		return conn, err
	}}
	ws, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(p.URL(), "http"), &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: transport}, Subprotocols: []string{"graphql-transport-ws"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ws.CloseNow() })
	if err := wsjson.Write(t.Context(), ws, client.Frame{Type: "connection_init"}); err != nil {
		t.Fatal(err)
	}
	var ack client.Frame
	if err := wsjson.Read(t.Context(), ws, &ack); err != nil || ack.Type != "connection_ack" {
		t.Fatal(ack, err)
	}
	err = wsjson.Write(t.Context(), ws, object{"id": "1", "type": "subscribe", "payload": client.Request{
		Query:     `subscription($id: ID!) { executionEvents(executionId: $id) { cursor ... on ExecutionOutput { text base64 } } }`,
		Variables: object{"id": execution},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
