package clients

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/test/pipes"
)

// Only Wait waits for a peer that doesn't read its refusal.
func TestRefusalsDoNotDelayClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := make(pipes.Listener)
		listener := New(Bounds{Connections: 1}).Listen(from)
		accepted := make(chan net.Conn, 1)
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				accepted <- conn
			}
		}()
		one, first := net.Pipe()
		other, second := net.Pipe()
		defer one.Close()
		defer other.Close()
		from <- first
		from <- second
		defer func() { _ = (<-accepted).Close() }()
		synctest.Wait()
		began := time.Now()
		if err := listener.Close(); err != nil || time.Since(began) != 0 {
			t.Errorf("closing took %v: %v", time.Since(began), err)
		}
		close(from) // nothing accepts connections any longer
		listener.Wait()
		if took := time.Since(began); took != refuseTime {
			t.Errorf("waiting took %v, want %v", took, refuseTime)
		}
		_ = other.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, other); err != nil {
			t.Errorf("the refused connection isn't closed: %v", err)
		}
	})
}
