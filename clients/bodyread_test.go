package clients

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

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/pipes"
)

// If a handler doesn't read the body, its response comes within restTime, and the connection ends,
// however the body was announced. If the body has arrived, the connection stays.
func TestUnreadBodiesEndTheConnection(t *testing.T) {
	const idle = 2 * restTime
	for name, test := range map[string]struct {
		head, body      string
		answered, ended time.Duration // since the request was sent
	}{
		"no byte of the body: closed":               {"Content-Length: 10\r\n\r\n", "", restTime, restTime},
		"part of the body: closed":                  {"Content-Length: 10\r\n\r\n", "abc", restTime, restTime},
		"no chunk: closed":                          {"Transfer-Encoding: chunked\r\n\r\n", "", restTime, restTime},
		"Expect 100: answered at once, then closed": {"Content-Length: 10\r\nExpect: 100-continue\r\n\r\n", "", 0, restTime},
		"Connection close: closed at once":          {"Content-Length: 10\r\nConnection: close\r\n\r\n", "", 0, 0},
		"whole body: kept open":                     {"Content-Length: 3\r\n\r\n", "abc", 0, idle},
		"no body: kept open":                        {"\r\n", "", 0, idle},
		"length 0: kept open":                       {"Content-Length: 0\r\n\r\n", "", 0, idle},
	} {
		synctest.Test(t, func(t *testing.T) {
			listener := make(pipes.Listener)
			server := &http.Server{Handler: new(Limiter).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
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

// An endless is a body with regular pieces and no end.
type endless struct {
	http.ResponseWriter
	late  time.Time // when the reader's time ends
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

// A slow body is read as long as something arrives: here a piece every 100 ms, with a silence of
// 101 ms, until a limit for the whole body.
func TestSlowBodiesAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endless{ResponseWriter: httptest.NewRecorder()}
		a := NewBody(e, httptest.NewRequest("POST", "/", e), 101*time.Millisecond)
		for range 1000 {
			if n, err := a.Read(make([]byte, 1)); n != 1 || err != nil {
				t.Fatalf("after %d pieces: %v", e.reads, err)
			}
		}
		a.SetEnd(time.Now().Add(time.Second))
		for e.reads = 0; a.err == nil; {
			_, _ = a.Read(make([]byte, 1))
		}
		if e.reads != 10 || runtime.CodeOf(a.err) != runtime.CodeLimitExceeded {
			t.Errorf("after %d pieces: %v", e.reads, a.err)
		}
	})
}

// Rest reads for restTime: the test counts pieces that arrive every 100 ms.
func TestRestIsReadForALimitedTime(t *testing.T) {
	for silence, pieces := range map[time.Duration]int{time.Second: 10, time.Minute: 50} {
		synctest.Test(t, func(t *testing.T) {
			e := &endless{ResponseWriter: httptest.NewRecorder()}
			NewBody(e, httptest.NewRequest("POST", "/", e), silence).Drain()
			if e.reads != pieces || e.Header().Get("Connection") != "close" {
				t.Errorf("%d pieces were read, %v", e.reads, e.Header())
			}
		})
	}
}

// A refused body doesn't close an HTTP/2 connection, since that carries other requests.
func TestRefusedBodiesKeepHTTP2Connections(t *testing.T) {
	for major, want := range map[int]string{1: "close", 2: ""} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/", nil)
		r.ProtoMajor, r.ContentLength = major, 10
		b := NewBody(w, r, time.Minute)
		if _, err := b.ReadAll(new(Reservation), 1); err == nil {
			t.Error("it is read")
		}
		b.Drain()
		if got := w.Header().Get("Connection"); got != want {
			t.Errorf("HTTP/%d: %q, want %q", major, got, want)
		}
	}
}
