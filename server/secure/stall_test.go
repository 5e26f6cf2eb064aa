package secure

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

	"github.com/rockpool/rockpool/graph/transport/socket"
	"github.com/rockpool/rockpool/test/tlstest"
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

func (pipes) Close() error   { return nil }
func (pipes) Addr() net.Addr { return &net.UnixAddr{} }

// A queued is a connection whose writes don't wait.
type queued struct {
	net.Conn
	written chan []byte
}

func (q *queued) Write(p []byte) (int, error) {
	q.written <- bytes.Clone(p)
	return len(p), nil
}

// TestStalledAnswersByHTTP2AreCutOff: a client that answers pings, but takes nothing of one answer,
// whether its handler goes on or has ended.
func TestStalledAnswersByHTTP2AreCutOff(t *testing.T) {
	for name, size := range map[string]int{"an answer that is written at its end": 1, "an answer that is written on": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				authority := tlstest.New(t) // valid at the test's time
				cert, key := authority.Write(t, t.TempDir(), "pool.example.org")
				certificates, err := Load(Files{Cert: cert, Key: key, MinVersion: tls.VersionTLS13}, zap.NewNop())
				if err != nil {
					t.Fatal(err)
				}
				handled := make(chan error, 1)
				from := make(pipes, 1)
				server := &http.Server{ConnContext: socket.ConnContext, ErrorLog: zap.NewStdLog(zap.NewNop()), Handler: Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					_, err := w.Write(make([]byte, size))
					handled <- err
				}))}
				Configure(server)
				ended := make(chan error, 1)
				go func() { ended <- server.Serve(Listen(from, certificates, zap.NewNop())) }()
				pipe, theirs := net.Pipe()
				ours := &queued{pipe, make(chan []byte, 100)}
				from <- theirs
				go func() { // else both sides could write, and nobody read
					for p := range ours.written {
						_, _ = pipe.Write(p)
					}
				}()
				began := time.Now()
				code, err := stall(tls.Client(ours, &tls.Config{RootCAs: authority.Pool, ServerName: "localhost", NextProtos: []string{"h2"}}))
				if took := time.Since(began); err != nil || code != http2.ErrCodeInternal || took < takenPatience || took > takenPatience+time.Second {
					t.Errorf("%v, %v after %s", code, err, took)
				}
				if err := <-handled; (err != nil) != (size > 1) {
					t.Errorf("the handler's write: %v", err)
				}
				_ = pipe.Close()
				close(ours.written)
				close(from)
				<-ended
				_ = server.Close()
				synctest.Wait()
			})
		})
	}
}

// stall asks for an answer, takes nothing of it, and returns how its stream ended.
func stall(conn *tls.Conn) (http2.ErrCode, error) {
	if err := conn.Handshake(); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(conn, clientPreface); err != nil {
		return 0, err
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
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
