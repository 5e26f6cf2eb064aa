package serve_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/test/wait"
)

// A scarceListener fails as accept(2) does on a machine without free descriptors.
type scarceListener struct {
	net.Listener
	fails []error
}

func (l *scarceListener) Accept() (net.Conn, error) {
	if len(l.fails) > 0 {
		err := l.fails[0]
		l.fails = l.fails[1:]
		return nil, &net.OpError{Op: "accept", Net: "unix", Err: os.NewSyscallError("accept4", err)}
	}
	return l.Listener.Accept()
}

// The agent must survive a program that uses up the machine's descriptors.
func TestServeRetriesWithoutDescriptors(t *testing.T) {
	inner, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	listener := &scarceListener{inner, []error{syscall.ENFILE, syscall.EMFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED}}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	server := newFixture(t, nil).server
	go func() {
		err := server.Serve(ctx, listener)
		cancel(err)
		ended <- err
	}()
	conn, err := net.Dial("unix", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	within, done := context.WithTimeout(ctx, wait.Limit)
	defer done()
	if _, err := agent.PingAgent(within, conn); err != nil {
		t.Errorf("ping: %v", err)
	}
	over := errors.New("over")
	cancel(over)
	if err := <-ended; !errors.Is(err, over) {
		t.Errorf("it ended with %v, want %v", err, over)
	}
}
