package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/need"

	"github.com/coder/websocket"

	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/server"
	"github.com/rockpool/rockpool/test/wait"
)

// floodMemory is the memory of the server in these tests.
const floodMemory = 1536 << 20

// memoryGroup makes a cgroup with a memory limit, and reads the limit back. It returns the cgroup's
// directory and the file with its usage.
func memoryGroup(t *testing.T, limit int64) (dir, used string) {
	t.Helper()
	trees, err := cgroup.Mounted()
	if err != nil {
		t.Fatal(err)
	}
	tree, ok := trees.Controller("memory")
	if !ok {
		t.Fatal("no tree of control groups limits memory")
	}
	dir = filepath.Join(tree.Mount, fmt.Sprintf("rockpool-flood-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		wait.For(t, "the group is empty and removed", func() bool { return os.Remove(dir) == nil })
	})
	file, swap, usage := "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.usage_in_bytes"
	if tree.V2 {
		file, swap, usage = "memory.max", "memory.swap.max", "memory.current"
	}
	want := strconv.FormatInt(limit, 10)
	if err := os.WriteFile(filepath.Join(dir, file), []byte(want), 0); err != nil {
		t.Fatal(err)
	}
	noSwap := want // memory and swap together
	if tree.V2 {
		noSwap = "0"
	}
	_ = os.WriteFile(filepath.Join(dir, swap), []byte(noSwap), 0) // some kernels don't count swap
	got, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil || strings.TrimSpace(string(got)) != want {
		t.Fatalf("the limit didn't take: %q, %v", got, err)
	}
	return dir, filepath.Join(dir, usage)
}

// serveInGroup starts a server with floodMemory, and returns the file with its cgroup's usage.
func serveInGroup(t *testing.T) (p *bed.Process, used string) {
	t.Helper()
	group, used := memoryGroup(t, floodMemory)
	return serveIn(t, group, bed.DataDir(t)), used
}

// serveIn starts a server in a group of memoryGroup.
func serveIn(t *testing.T, group, data string, settings ...string) *bed.Process {
	t.Helper()
	args := append([]string{"-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, group, bed.Rockpool(t), "serve", "--data", data}, settings...)
	p := bed.Serve(t, data, "sh", args...)
	if members, err := os.ReadFile(filepath.Join(group, "cgroup.procs")); err != nil || !strings.Contains("\n"+string(members), fmt.Sprintf("\n%d\n", p.Cmd.Process.Pid)) {
		t.Fatalf("the server isn't in its group: %q, %v", members, err)
	}
	return p
}

// A flood has requests of 29 MB each that never end.
type flood struct {
	server  string // address and port
	conns   []net.Conn
	running sync.WaitGroup
	sent    atomic.Int64 // requests sent except for their last byte, without an answer yet
	refused atomic.Int64 // requests refused because memory was short
	served  atomic.Int64 // requests that succeeded
	late    atomic.Int64 // requests given up after too long without an answer, on a busy machine
	other   atomic.Value // any other answer
}

// bodySize is the size of each request of a flood; all have the same bytes.
const bodySize = 29 << 20

var floodBody = sync.OnceValue(func() []byte {
	const before, after = `{"query":"{ version }","variables":{"a":"`, `"}}`
	return slices.Concat([]byte(before), bytes.Repeat([]byte("x"), bodySize-len(before)-len(after)), []byte(after))
})

// dial connects from one of this many addresses.
func (f *flood) dial(t *testing.T, i, addresses int) net.Conn {
	t.Helper()
	from := &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%addresses))}
	conn, err := (&net.Dialer{LocalAddr: from}).DialContext(t.Context(), "tcp", f.server)
	if err != nil {
		t.Fatal(err)
	}
	f.conns = append(f.conns, conn)
	return conn
}

// post sends a request completely or without its last byte, and reads the answer if there is one.
func (f *flood) post(conn net.Conn, whole bool) {
	answered := make(chan struct{})
	f.running.Go(func() {
		defer close(answered)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return // the connection was closed
		}
		text, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		switch {
		case response.StatusCode == http.StatusOK && bytes.Contains(text, []byte(`"version":`)):
			f.served.Add(1)
		case response.StatusCode == http.StatusServiceUnavailable && response.Header.Get("Retry-After") != "" && bytes.Contains(text, []byte(`"QUOTA_EXCEEDED"`)) && bytes.Contains(text, []byte("--body-memory")):
			f.refused.Add(1)
		case response.StatusCode == http.StatusRequestTimeout:
			f.late.Add(1)
		default:
			f.other.Store(fmt.Sprintf("%d %s", response.StatusCode, text))
		}
	})
	f.running.Go(func() {
		head := fmt.Sprintf("POST /graphql HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", f.server, bodySize)
		if _, err := io.WriteString(conn, head); err != nil {
			return
		}
		text := floodBody()
		if !whole {
			text = text[:bodySize-1]
		}
		if _, err := conn.Write(text); err != nil || whole {
			return
		}
		select {
		case <-answered:
		default:
			f.sent.Add(1)
		}
	})
}

// message sends a message over a WebSocket without its end, and reads why the WebSocket ends.
func (f *flood) message(t *testing.T, i, addresses int) {
	t.Helper()
	dial := func(context.Context, string, string) (net.Conn, error) { return f.dial(t, i, addresses), nil }
	ws, _, err := websocket.Dial(t.Context(), "ws://"+f.server+"/graphql", &websocket.DialOptions{
		Subprotocols: []string{transport.Subprotocol}, HTTPClient: &http.Client{Transport: &http.Transport{DialContext: dial}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.Write(t.Context(), websocket.MessageText, []byte(`{"type":"connection_init"}`)); err != nil {
		t.Fatal(err)
	}
	if _, ack, err := ws.Read(t.Context()); err != nil || !bytes.Contains(ack, []byte("connection_ack")) {
		t.Fatalf("%s %v", ack, err)
	}
	answered := make(chan struct{})
	f.running.Go(func() {
		defer close(answered)
		var closed websocket.CloseError
		_, text, err := ws.Read(context.Background())
		switch {
		case errors.As(err, &closed) && closed.Code == websocket.StatusTryAgainLater && strings.Contains(closed.Reason, "--body-memory"):
			f.refused.Add(1)
		case err == nil || errors.As(err, &closed):
			f.other.Store(fmt.Sprintf("%s %v", text, err))
		}
	})
	f.running.Go(func() {
		message, err := ws.Writer(context.Background(), websocket.MessageText)
		if err != nil {
			return
		}
		if _, err := message.Write(floodBody()[:bodySize-1]); err != nil {
			return
		}
		select {
		case <-answered:
		default:
			f.sent.Add(1)
		}
	})
}

// end closes all connections.
func (f *flood) end() {
	for _, conn := range f.conns {
		_ = conn.Close()
	}
	f.running.Wait()
}

// TestE2EFloodOfBodies sends a server in 1.5 GiB 200 requests of 29 MB that never end, from one
// address and from many, some as WebSocket messages. 200 requests that end follow. The server
// refuses those that it has no memory for, answers others meanwhile, and frees the memory
// afterwards.
func TestE2EFloodOfBodies(t *testing.T) {
	need.Machine(t)
	p, used := serveInGroup(t)
	if log := p.Stderr.String(); !strings.Contains(log, strconv.Itoa(floodMemory/100*server.GoShare)) {
		t.Errorf("the log doesn't tell the server's GOMEMLIMIT:\n%s", log)
	}
	before := memoryOf(t, p)
	address, err := url.Parse(p.Address)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		addresses, requests, messages, whole int
	}{{1, 200, 0, 0}, {50, 200, 0, 0}, {50, 40, 40, 0}, {50, 0, 0, 200}} {
		addresses := test.addresses
		f := &flood{server: address.Host}
		t.Cleanup(f.end)
		for i := range test.requests {
			f.post(f.dial(t, i, addresses), false)
		}
		for i := range test.whole {
			f.post(f.dial(t, i, addresses), true)
		}
		for i := range test.messages {
			f.message(t, i, addresses)
		}
		held := int64(min(20, test.requests+test.messages)) // at most, of requests that never end
		all := int64(test.requests + test.messages + test.whole)
		answered, most := 0, int64(0)
		wait.For(t, "each request is refused, or is completely sent", func() bool {
			p.Call(t, `{ version }`, nil, nil)
			answered++
			most = max(most, memoryOf(t, p))
			ended := f.refused.Load() + f.served.Load() + f.late.Load()
			return ended >= all-held && ended+f.sent.Load() >= all
		})
		small := f.dial(t, 0, addresses) // small requests from the flood's address still work
		if _, err := fmt.Fprintf(small, "GET /graphql?query={version} HTTP/1.1\r\nHost: %s\r\n\r\n", f.server); err != nil {
			t.Fatal(err)
		}
		if response, err := http.ReadResponse(bufio.NewReader(small), nil); err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("a small request of an address that floods: %+v, %v", response, err)
		}
		if f.refused.Load() == 0 {
			t.Error("none was refused")
		}
		t.Logf("%+v: %d refused, %d served, %d others answered meanwhile, %d MiB held at most, %d MiB before", test, f.refused.Load(), f.served.Load(), answered, most>>20, before>>20)
		if other := f.other.Load(); other != nil {
			t.Errorf("one was answered %v", other)
		}
		f.end()
		wait.For(t, "the memory is given back", func() bool { return memoryOf(t, p) < before+server.SpareMemory+server.SpareMemory/2 })
		t.Logf("%d MiB held afterwards, the group uses %s", memoryOf(t, p)>>20, readText(t, used))
	}
	p.Finish(t)
}

// TestE2EUnreadAnswersAreBounded requests 60 answers that nobody reads from a server in 1.5 GiB,
// from a few addresses. An answer is 48 MiB of output, or a hundred times 8 MiB, of characters that
// JSON makes six times as long. The server sends as much as it has memory for, and answers others
// meanwhile.
func TestE2EUnreadAnswersAreBounded(t *testing.T) {
	need.Machine(t)
	p, _ := serveInGroup(t)
	var run struct {
		Run struct{ Execution struct{ ID string } }
	}
	const prints = "head -c 8388608 /dev/zero | tr '\\0' '\\1'"
	p.Call(t, `mutation($in: RunInput!) { run(input: $in) { execution { id } } }`, object{"in": object{"environmentId": "shell", "waitFor": 600, "shell": prints}}, &run)
	id := run.Run.Execution.ID
	var ended struct{ Execution struct{ State string } }
	p.Call(t, `query($id: ID!) { execution(id: $id, waitFor: 600) { state } }`, object{"id": id}, &ended)
	if ended.Execution.State != "FINISHED" {
		t.Fatalf("it is %s, want FINISHED", ended.Execution.State)
	}
	address, err := url.Parse(p.Address)
	if err != nil {
		t.Fatal(err)
	}
	f := &flood{server: address.Host}
	t.Cleanup(f.end)
	queries := [2]string{`{"query":"{`, fmt.Sprintf(`{"query":"{ execution(id: \"%s\") { output(maxBytes: 8388608) { chunks {`, id)}
	for i := range 6 {
		queries[0] += fmt.Sprintf(` a%d: execution(id: \"%s\") { output(maxBytes: 8388608) { chunks { text } } }`, i, id)
	}
	for i := range 99 {
		queries[1] += fmt.Sprintf(` a%d: text`, i)
	}
	queries[0] += `}"}`
	queries[1] += `} } } }"}`
	var answered sync.WaitGroup
	var some atomic.Int64
	for i := range 60 {
		conn, query := f.dial(t, i, 3), queries[i%2]
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		answered.Go(func() {
			if _, err := fmt.Fprintf(conn, "POST /graphql HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", f.server, len(query), query); err != nil {
				return
			}
			response, err := http.ReadResponse(bufio.NewReaderSize(conn, 1<<10), nil) // but not its body
			if err == nil && response.ContentLength > 1<<20 {
				some.Add(1)
			}
		})
	}
	done := make(chan struct{})
	go func() { defer close(done); answered.Wait() }()
	wait.For(t, "each has an answer, or a refusal", func() bool {
		p.Call(t, `{ version }`, nil, nil)
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
	t.Logf("%d of 60 have output; %d MiB are held", some.Load(), memoryOf(t, p)>>20)
	if some.Load() == 0 {
		t.Error("no answer of 60 has output")
	}
	f.end()
	p.Finish(t)
}
