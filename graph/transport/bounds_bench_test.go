package transport

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/clients"
)

// BenchmarkSmallRequest measures a query of 1 KiB over one connection, with limits and without.
func BenchmarkSmallRequest(b *testing.B) {
	for name, bounds := range map[string]*clients.Limiter{"bounded": clients.New(clients.Bounds{Connections: 10, Operations: 10, Bodies: 1 << 30, PeerBodies: 1 << 29}), "unbounded": nil} {
		b.Run(name, func(b *testing.B) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			if bounds != nil {
				listener = bounds.Listen(listener)
			}
			bed := newBed(b, Settings{Peers: bounds}, listener)
			conn, err := net.Dial("tcp", strings.TrimPrefix(bed.url, "http://"))
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			const size = 1 << 10
			text := fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nAccept: */*\r\nUser-Agent: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", size, query(size))
			in := bufio.NewReader(conn)
			for b.Loop() {
				if _, err := io.WriteString(conn, text); err != nil {
					b.Fatal(err)
				}
				response, err := http.ReadResponse(in, nil)
				if err != nil || response.StatusCode != http.StatusOK {
					b.Fatal(response, err)
				}
				_, _ = io.Copy(io.Discard, response.Body)
			}
		})
	}
}
