package transport

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// A pipes is a listener for connections in memory, whose time is a test's.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error { return nil }

func (pipes) Addr() net.Addr { return &net.UnixAddr{} }

// TestBodiesThatNobodyReadsAreGivenUp: the answer of a handler that reads none comes
// within restTime, and the connection ends, however the body was announced. A
// connection whose body came goes on.
func TestBodiesThatNobodyReadsAreGivenUp(t *testing.T) {
	const idle = 2 * restTime
	for name, test := range map[string]struct {
		head, body      string
		answered, ended time.Duration // since it was sent
	}{
		"nothing came":             {"Content-Length: 10\r\n\r\n", "", restTime, restTime},
		"a part came":              {"Content-Length: 10\r\n\r\n", "abc", restTime, restTime},
		"no chunk came":            {"Transfer-Encoding: chunked\r\n\r\n", "", restTime, restTime},
		"the client waits for 100": {"Content-Length: 10\r\nExpect: 100-continue\r\n\r\n", "", 0, restTime},
		"the client wants the end": {"Content-Length: 10\r\nConnection: close\r\n\r\n", "", 0, 0},
		"all of it came":           {"Content-Length: 3\r\n\r\n", "abc", 0, idle},
		"there is none":            {"\r\n", "", 0, idle},
		"its length is 0":          {"Content-Length: 0\r\n\r\n", "", 0, idle},
	} {
		synctest.Test(t, func(t *testing.T) {
			listener := make(pipes)
			server := &http.Server{Handler: BoundUnread(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusUnauthorized)
			})), IdleTimeout: idle}
			served := make(chan struct{})
			go func() { defer close(served); _ = server.Serve(listener) }()
			client, conn := net.Pipe()
			defer func() {
				close(listener)
				_ = server.Close()
				<-served
				_ = client.Close()
				synctest.Wait()
			}()
			listener <- conn
			began := time.Now()
			if _, err := io.WriteString(client, "POST / HTTP/1.1\r\nHost: x\r\n"+test.head+test.body); err != nil {
				t.Fatal(name, err)
			}
			_ = client.SetDeadline(began.Add(2 * idle))
			in := bufio.NewReader(client)
			response, err := http.ReadResponse(in, nil)
			if err != nil || response.StatusCode != http.StatusUnauthorized {
				t.Fatalf("%s: %+v, %v", name, response, err)
			}
			if takes := time.Since(began); takes != test.answered {
				t.Errorf("%s: the answer took %v, not %v", name, takes, test.answered)
			}
			_, err = in.ReadByte()
			if took := time.Since(began).Truncate(time.Second); err != io.EOF || took != test.ended { // net/http may add half a second
				t.Errorf("%s: the connection ended after %v with %v, not after %v", name, took, err, test.ended)
			}
		})
	}
}
