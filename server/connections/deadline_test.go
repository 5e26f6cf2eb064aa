package connections

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/clients"
)

// deadlinePipe returns a connection under test and its peer.
func deadlinePipe(patience time.Duration) (*deadlineConn, net.Conn) {
	ours, theirs := net.Pipe()
	return &deadlineConn{Conn: ours, patience: patience}, theirs
}

func TestSlowReadersStayConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := deadlinePipe(time.Minute)
		sent := bytes.Repeat([]byte("x"), 3*clients.WritePiece+1)
		var got bytes.Buffer
		done := make(chan error)
		go func() {
			_, err := conn.Write(sent)
			_ = conn.Close()
			done <- err
		}()
		for { // a piece takes less than the patience, the whole takes more
			time.Sleep(50 * time.Second)
			if _, err := io.CopyN(&got, peer, clients.WritePiece); err != nil {
				break
			}
		}
		if err := <-done; err != nil || !bytes.Equal(got.Bytes(), sent) {
			t.Errorf("%d of %d bytes, %v", got.Len(), len(sent), err)
		}
	})
}

func TestPeersThatReadNothingAreDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := deadlinePipe(time.Minute)
		defer peer.Close()
		began := time.Now()
		if _, err := conn.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestAPastDeadlineEndsWrites: a response that ends with its caller's token doesn't wait for a
// client that reads nothing.
func TestAPastDeadlineEndsWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := deadlinePipe(time.Minute)
		defer peer.Close()
		began := time.Now()
		time.AfterFunc(time.Second, func() { _ = conn.SetWriteDeadline(time.Now()) })
		if _, err := conn.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if _, err := conn.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("later: %v after %v", err, time.Since(began))
		}
		going, reader := deadlinePipe(time.Minute)
		defer reader.Close()
		_ = going.SetWriteDeadline(time.Time{}) // none
		go func() { _, _ = reader.Read(make([]byte, 1)) }()
		if _, err := going.Write([]byte("x")); err != nil {
			t.Error(err)
		}
	})
}

// A failingListener is a listener that fails once with each error and then returns connections.
type failingListener struct {
	net.Listener
	errs []error
}

func (l *failingListener) Accept() (net.Conn, error) {
	if len(l.errs) == 0 {
		return l.Listener.Accept()
	}
	err := l.errs[0]
	l.errs = l.errs[1:]
	return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", err)}
}

// TestAcceptContinuesAfterTemporaryErrors that don't mean that the listener is broken.
func TestAcceptContinuesAfterTemporaryErrors(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sick := &failingListener{listener, []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EPROTO, syscall.EHOSTUNREACH}}
	server := &http.Server{Handler: http.NotFoundHandler(), ErrorLog: zap.NewStdLog(zap.NewNop())}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(deadlineListener{sick, time.Minute}) }()
	response, err := http.Get("http://" + listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) || len(sick.errs) > 0 {
		t.Errorf("it ended with %v, before %v", err, sick.errs)
	}
}
