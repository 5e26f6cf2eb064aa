package main

import (
	"context"
	"crypto/sha256"
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
	"github.com/rockpool/rockpool/test/wait"
)

// A cutter is a TCP proxy that cuts each connection after a random number of
// bytes.
type cutter struct {
	listener net.Listener
	target   string
	most     int64 // bytes towards the client before a cut
	group    sync.WaitGroup
	accepted atomic.Int64 // connections
}

func newCutter(t *testing.T, target string, most int64) *cutter {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{listener: listener, target: target, most: most}
	c.group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			c.accepted.Add(1)
			c.group.Go(func() { c.serve(t.Context(), conn) })
		}
	})
	t.Cleanup(func() { listener.Close(); c.group.Wait() })
	return c
}

func (c *cutter) serve(ctx context.Context, client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", c.target)
	if err != nil {
		return
	}
	defer server.Close()
	// Clients keep connections for later, longer than the test lasts.
	defer context.AfterFunc(ctx, func() { client.Close() })()
	c.group.Go(func() {
		_, _ = io.Copy(server, client)
		server.Close() // the client left
	})
	_, _ = io.CopyN(client, server, 1+rand.Int64N(c.most))
	_ = client.(*net.TCPConn).SetLinger(0) // a reset, not an orderly end
}

// TestE2EResumingWatcherHasEveryByteOnce follows a program over connections
// that are cut 300 times, while it prints and afterwards.
func TestE2EResumingWatcherHasEveryByteOnce(t *testing.T) {
	b := e2e(t)
	runner := b.claim(t, "shell")
	id := b.start(t, object{"runnerId": runner, "shell": `i=0; while [ $i -lt 40 ]; do seq $((1000000+i*8000)) $((1007999+i*8000)); echo err $i >&2; sleep 0.1; i=$((i+1)); done`})

	whole := 0
	watched := make(chan error, 1)
	go func() {
		watched <- b.follow(t.Context(), id, nil, func(e executionEvent) { whole += len(e.Base64) })
	}()

	// Some connections last for less than one event, most for a few.
	proxy := newCutter(t, strings.TrimPrefix(b.url, "http://"), 60_000)
	cutting := bed{Client: client.New("http://" + proxy.listener.Addr().String())}
	live, cuts := cutting.resume(t, id)
	if err := wait.Receive(t, watched, "the watcher's end"); err != nil {
		t.Fatal(err)
	}
	// Once more after the end; and over one connection that isn't cut.
	late, more := cutting.resume(t, id)
	var one [2][]byte
	if err := b.follow(t.Context(), id, nil, func(e executionEvent) { one[index(e)] = append(one[index(e)], e.Base64...) }); err != nil {
		t.Fatal(err)
	}
	if cuts < 50 || cuts+more < 300 {
		t.Errorf("%d cuts while it ran and %d after, want 300 or more", cuts, more)
	}
	for i := range one {
		for when, got := range map[string]string{"while it ran": live[i], "after it": late[i]} {
			if sha256.Sum256([]byte(got)) != sha256.Sum256(one[i]) {
				t.Errorf("stream %d, %s: %d bytes over cut connections, %d over one", i, when, len(got), len(one[i]))
			}
		}
	}
	if whole != len(one[0])+len(one[1]) {
		t.Errorf("%d bytes to the watcher of the whole run, %d afterwards", whole, len(one[0])+len(one[1]))
	}
}

// resume follows an execution to its end, from the last cursor after every
// cut. It returns what both streams had, and how many cuts there were.
func (b bed) resume(t *testing.T, id string) ([2]string, int) {
	t.Helper()
	var after *string
	var both [2][]byte
	cuts := 0
	for finished := false; !finished; {
		err := b.follow(t.Context(), id, after, func(e executionEvent) {
			after = &e.Cursor
			finished = e.Type == "ExecutionFinished"
			both[index(e)] = append(both[index(e)], e.Base64...)
			if e.Type == "ExecutionOutputLost" {
				t.Errorf("lost %d bytes: %s", e.Bytes, e.Reason)
			}
		})
		if finished {
			break
		}
		if err == nil || t.Context().Err() != nil {
			t.Fatalf("ended without the end: %v", err)
		}
		cuts++
	}
	return [2]string{string(both[0]), string(both[1])}, cuts
}

func index(e executionEvent) int {
	if e.Stream == "STDERR" {
		return 1
	}
	return 0
}

// TestE2EFloodWithAStalledWatcher has a program print 1 GiB while the only
// watcher reads ten bytes: the server's memory stays.
func TestE2EFloodWithAStalledWatcher(t *testing.T) {
	p := serveBinary(t, dataDir(t))
	p.call(t, `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`,
		object{"in": object{"id": "flood", "poolSize": 1, "outputLimit": 2 << 30, "defaultTimeLimit": 600}}, nil)
	runner := p.claimLoosely(t, "flood")
	// A first, small one: what watching costs at all isn't what a flood costs.
	small := p.start(t, object{"runnerId": runner, "shell": "head -c 1M /dev/zero"})
	if err := p.follow(t.Context(), small, nil, func(executionEvent) {}); err != nil {
		t.Fatal(err)
	}
	forgetPeak(t, p.cmd.Process.Pid)
	before := peak(t, p.cmd.Process.Pid)

	id := p.start(t, object{"runnerId": runner, "shell": "head -c 1G /dev/zero"})
	conn := p.slowWatcher(t, id)
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 10)); err != nil { // and no more
		t.Fatal(err)
	}
	var out struct{ Execution struct{ Outcome string } }
	p.call(t, `query($id: ID!) { execution(id: $id, waitFor: 600) { outcome } }`, object{"id": id}, &out)
	if out.Execution.Outcome != "EXITED" {
		t.Errorf("it ended as %q", out.Execution.Outcome)
	}
	most := peak(t, p.cmd.Process.Pid)
	t.Logf("the server had %d KiB before and %d KiB at most", before>>10, most>>10)
	if grown := most - before; grown >= 16<<20 {
		t.Errorf("the server's memory grew by %d KiB", grown>>10)
	}
	p.end(t, 15, false)
	p.wantNothingLeft(t)
}

// slowWatcher subscribes and leaves what comes in the socket, whose buffer is
// small.
func (p *process) slowWatcher(t *testing.T, execution string) net.Conn {
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
