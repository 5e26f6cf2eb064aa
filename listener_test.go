package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
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
