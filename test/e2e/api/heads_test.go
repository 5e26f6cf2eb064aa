package api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/need"

	"github.com/rockpool/rockpool/server"
	"github.com/rockpool/rockpool/test/wait"
)

// TestE2EFloodOfHeads sends a server in 1.5 GiB the heads of 2,000 requests, from many addresses
// and without a token. It refuses heads that are too large. The others are as large as a head may
// be, and never end; together they take the memory that the server reserves for their connections.
// A body that nobody reads ends its connection.
func TestE2EFloodOfHeads(t *testing.T) {
	need.Machine(t)
	const heads = 2000
	data := bed.DataDir(t)
	program := bed.Rockpool(t)
	group, _ := memoryGroup(t, floodMemory)
	p := bed.Serve(t, data, "sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, group, program, "serve", "--data", data)
	address, err := url.Parse(p.Address)
	if err != nil {
		t.Fatal(err)
	}
	before := memoryOf(t, p)
	f := &flood{server: address.Host}
	t.Cleanup(f.end)
	begun := "GET /graphql HTTP/1.1\r\nHost: " + f.server + "\r\n"
	fields := func(n, size int) string {
		var text strings.Builder
		for i := range n {
			_, _ = fmt.Fprintf(&text, "a%d:%s\r\n", i, strings.Repeat("x", size))
		}
		return text.String()
	}
	for name, text := range map[string]string{"fields": begun + fields(40_000, 0), "bytes": begun + fields(1, 700<<10)} {
		var sent sync.WaitGroup
		for i := range heads {
			conn := f.dial(t, i, 50)
			sent.Go(func() {
				defer conn.Close()
				f.running.Go(func() { _, _ = io.WriteString(conn, text) }) // ends with the connection
				if response, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil && response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
					t.Errorf("too many %s: %s", name, response.Status)
				}
			})
		}
		sent.Wait()
		p.Call(t, `{ version }`, nil, nil)
	}
	largest := begun + fields(95, 160)
	var held []net.Conn
	for i := range heads {
		conn := f.dial(t, i, 50)
		if _, err := io.WriteString(conn, largest); err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
	}
	p.Call(t, `{ version }`, nil, nil)
	// The garbage collector allows as much memory again before it runs.
	if each := (memoryOf(t, p) - before) / heads; each > server.MemoryOfConnection/4*2 {
		t.Errorf("an unfinished head takes %d bytes of the server", each)
	} else {
		t.Logf("an unfinished head of %d bytes takes %d bytes of the server", len(largest), each)
	}
	// The server doesn't wait for the body of a refused request either.
	for _, refused := range []string{"POST /graphql HTTP/1.1\r\nHost: elsewhere\r\n", "POST /metrics HTTP/1.1\r\nHost: " + f.server + "\r\n", "GET / HTTP/1.1\r\nHost: " + f.server + "\r\n"} {
		conn := f.dial(t, 0, 50)
		_ = conn.SetDeadline(time.Now().Add(wait.Limit))
		if _, err := io.WriteString(conn, refused+"Content-Length: 10\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Errorf("%q: %v", refused, err)
		}
	}
	for _, conn := range held {
		_ = conn.Close()
	}
	wait.For(t, "the memory is given back", func() bool { return memoryOf(t, p) < before+server.SpareMemory+server.SpareMemory/2 })
	p.Finish(t)
}
