package arriving

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/graph/transport/peers"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/pipes"
)

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
			listener := make(pipes.Listener)
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

// An endless is a body of which something comes again and again.
type endless struct {
	http.ResponseWriter
	late  time.Time // when the reader's patience ends
	reads int
}

func (e *endless) SetReadDeadline(at time.Time) error {
	e.late = at
	return nil
}

func (e *endless) Read(p []byte) (int, error) {
	e.reads++
	time.Sleep(min(100*time.Millisecond, time.Until(e.late)))
	if !time.Now().Before(e.late) {
		return 0, os.ErrDeadlineExceeded
	}
	return len(p), nil
}

// A body may take its time as long as something comes: here a piece every 100 ms,
// with a silence of 101 ms, until a bound for the whole.
func TestSlowBodiesAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endless{ResponseWriter: httptest.NewRecorder()}
		a := New(e, httptest.NewRequest("POST", "/", e), 101*time.Millisecond)
		for range 1000 {
			if n, err := a.Read(make([]byte, 1)); n != 1 || err != nil {
				t.Fatalf("after %d pieces: %v", e.reads, err)
			}
		}
		a.Until(time.Now().Add(time.Second))
		for e.reads = 0; a.err == nil; {
			_, _ = a.Read(make([]byte, 1))
		}
		if e.reads != 10 || runtime.CodeOf(a.err) != runtime.CodeLimitExceeded {
			t.Errorf("after %d pieces: %v", e.reads, a.err)
		}
	})
}

// TestTheRestIsReadForAWhile counts pieces that come every 100 ms.
func TestTheRestIsReadForAWhile(t *testing.T) {
	for silence, pieces := range map[time.Duration]int{time.Second: 10, time.Minute: 50} {
		synctest.Test(t, func(t *testing.T) {
			e := &endless{ResponseWriter: httptest.NewRecorder()}
			New(e, httptest.NewRequest("POST", "/", e), silence).Rest()
			if e.reads != pieces || e.Header().Get("Connection") != "close" {
				t.Errorf("%d pieces were read, %v", e.reads, e.Header())
			}
		})
	}
}

// TestARefusedBodyClosesNoHTTP2Connection: that carries other requests, too.
func TestARefusedBodyClosesNoHTTP2Connection(t *testing.T) {
	for major, want := range map[int]string{1: "close", 2: ""} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/", nil)
		r.ProtoMajor, r.ContentLength = major, 10
		b := New(w, r, time.Minute)
		if _, err := b.Whole(new(peers.Hold), 1); err == nil {
			t.Error("it is read")
		}
		b.Rest()
		if got := w.Header().Get("Connection"); got != want {
			t.Errorf("HTTP/%d: %q", major, got)
		}
	}
}
