package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// patientPipe returns a connection under test and its peer.
func patientPipe(patience time.Duration) (patientConn, net.Conn) {
	ours, theirs := net.Pipe()
	return patientConn{ours, patience}, theirs
}

func TestSlowReadersAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := patientPipe(time.Minute)
		sent := bytes.Repeat([]byte("x"), 3*writePiece+1)
		var got bytes.Buffer
		done := make(chan error)
		go func() {
			_, err := conn.Write(sent)
			_ = conn.Close()
			done <- err
		}()
		for { // a piece takes less than the patience, the whole takes more
			time.Sleep(50 * time.Second)
			if _, err := io.CopyN(&got, peer, writePiece); err != nil {
				break
			}
		}
		if err := <-done; err != nil || !bytes.Equal(got.Bytes(), sent) {
			t.Errorf("%d of %d bytes, %v", got.Len(), len(sent), err)
		}
	})
}

func TestPeersThatTakeNothingAreCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := patientPipe(time.Minute)
		defer peer.Close()
		began := time.Now()
		if _, err := conn.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestAddressesAreWaitedFor: a server that was killed may have left its socket to
// a process that isn't executed yet.
func TestAddressesAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := NewServer(Config{Listen: taken.Addr().String()}, zap.NewNop())
		began := time.Now()
		if _, err := server.listen(t.Context()); !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "--listen") || time.Since(began) < listenPatience {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		time.AfterFunc(listenPatience/4, func() { _ = taken.Close() })
		listener, err := server.listen(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = listener.Close()
	})
}
