package connections

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/test/pipes"
	"github.com/rockpool/rockpool/test/tlstest"
)

// A queuedConn is a connection whose writes don't block.
type queuedConn struct {
	net.Conn
	written chan []byte
}

func (q *queuedConn) Write(p []byte) (int, error) {
	q.written <- bytes.Clone(p)
	return len(p), nil
}

// speak serves one HTTP/2 request in a synctest bubble, and returns how its stream ended and when.
func speak(t *testing.T, window uint32, handle http.HandlerFunc) (code http2.ErrCode, took time.Duration) {
	t.Helper()
	authority := tlstest.New(t) // valid at the test's time
	cert, key := authority.Write(t, t.TempDir(), "pool.example.org")
	certificates, err := LoadCertificates(Files{Cert: cert, Key: key, MinVersion: tls.VersionTLS13}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	from := make(pipes.Listener, 1)
	server := &http.Server{ConnContext: clients.ConnContext, ErrorLog: zap.NewStdLog(zap.NewNop()), Handler: clients.New(clients.Bounds{}).Handler(handle)}
	Configure(server)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(&tlsListener{from, certificates, zap.NewNop()}) }()
	pipe, theirs := net.Pipe()
	ours := &queuedConn{pipe, make(chan []byte, 100)}
	from <- theirs
	go func() { // else both sides could write, and nobody read
		for p := range ours.written {
			_, _ = pipe.Write(p)
		}
	}()
	began := time.Now()
	code, err = askHTTP2(tls.Client(ours, &tls.Config{RootCAs: authority.Pool, ServerName: "localhost", NextProtos: []string{"h2"}}), window)
	took = time.Since(began)
	if err != nil {
		t.Errorf("after %s: %v", took, err)
	}
	_ = pipe.Close()
	close(ours.written)
	close(from)
	<-ended
	_ = server.Close()
	synctest.Wait()
	return code, took
}

// TestStalledHTTP2ResponsesAreAborted: a client answers pings but reads nothing of one response,
// whose handler still runs or has ended.
func TestStalledHTTP2ResponsesAreAborted(t *testing.T) {
	for name, size := range map[string]int{"an answer that is written at its end": 1, "an answer that is written on": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				handled := make(chan error, 1)
				code, took := speak(t, 0, func(w http.ResponseWriter, _ *http.Request) {
					_, err := w.Write(make([]byte, size))
					handled <- err
				})
				if code != http2.ErrCodeInternal || took < writePatience || took > writePatience+time.Second {
					t.Errorf("%v after %s", code, took)
				}
				if err := <-handled; (err != nil) != (size > 1) {
					t.Errorf("the handler's write: %v", err)
				}
			})
		})
	}
}

// TestSlowHTTP2HandlersAreNotAborted: the deadline applies only to writes.
func TestSlowHTTP2HandlersAreNotAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		code, took := speak(t, 1<<16, func(w http.ResponseWriter, _ *http.Request) {
			for range 2 {
				if _, err := io.WriteString(w, "x"); err != nil {
					t.Error(err)
				}
				time.Sleep(2 * writePatience)
			}
		})
		if code != http2.ErrCodeNo || took < 4*writePatience {
			t.Errorf("%v after %s", code, took)
		}
	})
}

// askHTTP2 sends a request, reads some bytes of the response, and returns how the stream ended.
func askHTTP2(conn *tls.Conn, window uint32) (http2.ErrCode, error) {
	if err := conn.Handshake(); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(conn, clientPreface); err != nil {
		return 0, err
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}); err != nil {
		return 0, err
	}
	var head bytes.Buffer
	fields := hpack.NewEncoder(&head)
	for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "localhost"}, {":path", "/"}} {
		_ = fields.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
		return 0, err
	}
	for {
		read, err := framer.ReadFrame()
		if err != nil {
			return 0, err
		}
		switch frame := read.(type) {
		case *http2.RSTStreamFrame:
			return frame.ErrCode, nil
		case *http2.DataFrame:
			if frame.StreamEnded() {
				return http2.ErrCodeNo, nil
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				err = framer.WritePing(true, frame.Data)
			}
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = framer.WriteSettingsAck()
			}
		}
		if err != nil {
			return 0, err
		}
	}
}
