package transport

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	goruntime "runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

// vanish makes a socket drop everything that arrives, without an acknowledgement or a reset, like a
// peer whose cable was pulled.
func vanish(t *testing.T, conn net.Conn) {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	drop := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop})
	}); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
}

// Nothing is printed, and nothing closes the connection. Only a ping finds a vanished peer.
func TestVanishedPeersAreForgotten(t *testing.T) {
	need.Sandboxes(t) // needs root: if many filters are in use, a kernel refuses one of a plain user
	b := newBed(t, Settings{Keepalive: 50 * time.Millisecond, Patience: time.Hour})
	t.Run("WebSocket", func(t *testing.T) {
		conn := b.raw(t, 0)
		_, _ = conn.Write(masked(initMessage))
		_, _ = conn.Write(masked(`{"id":"1","type":"subscribe","payload":{"query":"subscription silent { x }"}}`))
		wait.For(t, "one subscription is open", func() bool { return b.open.Load() == 1 })
		vanish(t, conn)
		b.idle(t)
	})
	t.Run("SSE", func(t *testing.T) {
		conn, _ := b.events(t, "silent", 0)
		wait.For(t, "one subscription is open", func() bool { return b.open.Load() == 1 })
		vanish(t, conn)
		b.idle(t)
	})
}

// The peer's kernel responds, so the peer may be slow; but only for Patience.
func TestPeersWithoutPongAreDisconnected(t *testing.T) {
	b := newBed(t, Settings{Keepalive: 10 * time.Millisecond, Patience: 3 * time.Second}) // the ping is written in this time, also on a busy machine
	conn := b.raw(t, 0)
	_, _ = conn.Write(masked(initMessage))
	_, _ = conn.Write(masked(`{"id":"1","type":"subscribe","payload":{"query":"subscription silent { x }"}}`))
	got, _ := io.ReadAll(conn) // it reads, and sends nothing
	if !strings.Contains(string(got), `{"type":"ping"}`) {
		t.Errorf("got %q", got)
	}
	b.idle(t)
}

func TestPeersThatAnswerPingsStay(t *testing.T) {
	b := newBed(t, Settings{Keepalive: 20 * time.Millisecond, Patience: time.Hour})
	p := b.hello(t)
	p.subscribe("1", "silent")
	for range 10 { // each ping but the first shows that the last pong was read
		p.want(`{"type":"ping"}`)
		p.send(`{"type":"pong"}`)
	}
}

// A thousand peers read nothing of a flood. They hold at most their budget, and a peer that reads
// waits for none of them.
func TestStalledReadersStayInTheirBudget(t *testing.T) {
	const stalled = 1000
	b := newBed(t, Settings{SlowAfter: time.Hour, Patience: time.Hour, Keepalive: time.Hour})
	var before, during goruntime.MemStats
	goruntime.GC()
	goruntime.ReadMemStats(&before)
	conns := make([]net.Conn, stalled)
	for i := range conns {
		conns[i] = b.raw(t, 4<<10)
		_, _ = conns[i].Write(masked(initMessage))
		_, _ = conns[i].Write(masked(floodMessage))
	}
	wait.For(t, "all are open", func() bool { return b.open.Load() == stalled })

	reader := b.hello(t)
	reader.subscribe("1", "flood")
	for range 500 {
		reader.read()
	}
	if n := b.open.Load(); n != stalled+1 {
		t.Errorf("%d subscriptions are open: it waited for the end of some", n)
	}

	goruntime.GC()
	goruntime.ReadMemStats(&during)
	each := (int64(during.HeapAlloc) - int64(before.HeapAlloc)) / stalled
	t.Logf("a stalled reader holds %d KiB", each>>10)
	if budget := int64(DefaultBudget + 64<<10 + 32<<10); each > budget {
		t.Errorf("a stalled reader holds %d bytes, more than %d", each, budget)
	}
	if reader.conn.CloseNow() != nil {
		t.Error("closing failed")
	}
	for _, conn := range conns {
		conn.Close()
	}
	b.idle(t)
}

func TestOperationsOfSlowReadersEnd(t *testing.T) {
	b := newBed(t, Settings{SlowAfter: 100 * time.Millisecond, Keepalive: time.Hour})
	conn := b.raw(t, 4<<10)
	_, _ = conn.Write(masked(initMessage))
	_, _ = conn.Write(masked(floodMessage))
	wait.For(t, "the operation began", func() bool { return b.begun.Load() == 1 })
	b.idle(t) // although nobody has read that

	// A client that reads again gets the reason and the cursor. The server's kernel probes ever
	// more rarely whether so small a buffer has room.
	_ = conn.SetReadDeadline(time.Now().Add(wait.Limit))
	last := untilError(t, bufio.NewReader(conn))
	var failure struct {
		Payload []struct {
			Extensions struct {
				Code, Cursor string
				Retryable    bool
			}
		}
	}
	if err := json.Unmarshal([]byte(last), &failure); err != nil || len(failure.Payload) != 1 {
		t.Fatalf("%s: %v", last, err)
	}
	ext := failure.Payload[0].Extensions
	if n, err := strconv.Atoi(ext.Cursor); err != nil || n < 1 || ext.Code != "SLOW_CONSUMER" || !ext.Retryable {
		t.Errorf("%s", last)
	}
}

// untilError returns the first error message. It checks that the error's cursor is that of the last
// event before.
func untilError(t *testing.T, reader *bufio.Reader) string {
	t.Helper()
	last := ""
	for {
		head := make([]byte, 2)
		if _, err := io.ReadFull(reader, head); err != nil {
			t.Fatal(err)
		}
		size := int(head[1])
		switch size {
		case 126:
			size = int(readUint(t, reader, 2))
		case 127:
			size = int(readUint(t, reader, 8))
		}
		text := make([]byte, size)
		if _, err := io.ReadFull(reader, text); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(text), `{"id":"1","type":"error"`) {
			if !strings.Contains(string(text), `"cursor":"`+last+`"`) {
				t.Errorf("the last event was %s, but %s", last, text)
			}
			return string(text)
		}
		if _, rest, ok := strings.Cut(string(text), `{"n":`); ok {
			last, _, _ = strings.Cut(rest, ",")
		}
	}
}

func readUint(t *testing.T, reader io.Reader, size int) (n uint64) {
	t.Helper()
	raw := make([]byte, size)
	if _, err := io.ReadFull(reader, raw); err != nil {
		t.Fatal(err)
	}
	for _, b := range raw {
		n = n<<8 | uint64(b)
	}
	return n
}

// Responses wait only up to a limit for a client that doesn't read them. Then the server reads no
// more requests.
func TestUnreadResponsesStallTheConnection(t *testing.T) {
	b := newBed(t, Settings{MaxOperations: 4})
	conn := b.raw(t, 0)
	_, _ = conn.Write(masked(initMessage))
	name := strings.Repeat("q", 60_000)
	const all = 1000 // 60 MB of responses: no kernel holds them
	var sent atomic.Int64
	written := make(chan error, 1)
	go func() {
		for i := range all {
			if _, err := conn.Write(masked(fmt.Sprintf(`{"id":"%d","type":"subscribe","payload":{"query":"query %s { x }"}}`, i, name))); err != nil {
				written <- err
				return
			}
			sent.Add(1)
		}
		written <- nil
	}()
	before, same := int64(0), 0
	wait.For(t, "no more is read", func() bool {
		now := sent.Load()
		if same++; now != before || now == 0 {
			before, same = now, 0
		}
		return same == 10 || now == all
	})
	if sent.Load() == all {
		t.Fatal("every request was read")
	}
	// The client was delayed, not disconnected: when it reads, all its requests are served.
	go func() { _, _ = io.Copy(io.Discard, conn) }() // until the test's end
	if err := wait.Receive(t, written, "all are sent"); err != nil {
		t.Error(err)
	}
}

func TestPeersThatReadNothingAreDisconnected(t *testing.T) {
	b := newBed(t, Settings{SlowAfter: time.Hour, Patience: 100 * time.Millisecond, Keepalive: time.Hour})
	t.Run("WebSocket", func(t *testing.T) {
		conn := b.raw(t, 4<<10)
		_, _ = conn.Write(masked(initMessage))
		_, _ = conn.Write(masked(floodMessage))
		wait.For(t, "the operation began", func() bool { return b.begun.Load() == 1 })
		b.idle(t)
	})
	t.Run("SSE", func(t *testing.T) {
		_, _ = b.events(t, "flood", 4<<10)
		wait.For(t, "the operation began", func() bool { return b.begun.Load() == 2 })
		b.idle(t)
	})
}

func TestOneLaneDoesNotDelayAnother(t *testing.T) {
	box := newSendQueue()
	flood, quiet := box.queue("a", 10), box.queue("b", 10)
	for range 100 {
		flood.push(Message{Payload: make([]byte, 40<<10)})
	}
	quiet.push(Message{Payload: []byte("x")})
	box.urgent([]byte("pong"))
	batch := box.take(nil)
	if len(batch) != 4 || batch[0].queue != nil || batch[1].queue != flood || batch[2].queue != quiet || batch[3].queue != flood {
		t.Errorf("%d in the first batch", len(batch))
	}
	for i := range 1000 {
		if box.urgent([]byte("pong")) != (i < 64) {
			t.Fatalf("%d pongs are held for whom reads none", i)
		}
	}
}

func TestRoomWaitsForProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		box := newSendQueue()
		l := box.queue("1", 10)
		began := time.Now()
		l.push(Message{Payload: []byte("0123456789")})
		go func() {
			for range 3 { // progress, but no room: another message is always pushed
				time.Sleep(50 * time.Second)
				l.push(Message{Payload: []byte("0123456789")})
				box.wrote(box.take(nil)[:1])
			}
		}()
		if err := l.waitForRoom(t.Context(), time.Minute); err != errSlow || time.Since(began) != 210*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.waitForRoom(ctx, time.Minute); err != context.Canceled {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
		other := box.queue("2", 10)
		other.push(Message{Payload: []byte("0123456789")})
		other.drop()
		if err := other.waitForRoom(t.Context(), time.Minute); err != nil {
			t.Errorf("%v", err)
		}
		synctest.Wait()
	})
}

// events opens a subscription over SSE on a raw connection.
func (b *bed) events(t *testing.T, name string, readBuffer int) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if readBuffer > 0 {
		_ = conn.(*net.TCPConn).SetReadBuffer(readBuffer)
	}
	request, _ := http.NewRequest(http.MethodGet, b.url+"/?query=subscription+"+name+"+{x}", nil)
	request.Header.Set("Accept", "text/event-stream")
	if err := request.Write(conn); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}
