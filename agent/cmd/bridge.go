package main

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/bridge"
	"github.com/rockpool/rockpool/agent/cmd/executor"
)

// serveBridge carries streams between this process's standard input and output and the agent's socket at
// path. It returns when the input ends.
func serveBridge(path string) error {
	executor.TuneMemory()
	// Only the agent's user can connect to its socket.
	if err := becomeRoot(); err != nil {
		return err
	}
	dial := func() (conn net.Conn, err error) {
		err = nearby(path, func(address *net.UnixAddr) (err error) {
			conn, err = net.DialUnix("unix", nil, address)
			return err
		})
		var errno syscall.Errno
		if errors.As(err, &errno) {
			err = errno // without the path, which the server knows or shouldn't see
		}
		return conn, err
	}
	stdio, err := newStdio()
	if err != nil {
		return err
	}
	return bridge.Serve(context.Background(), stdio, dial)
}

// stdio is the standard input and output as one stream. Close ends a blocked read.
type stdio struct{ in, out *os.File }

// newStdio makes descriptors 0 and 1 non-blocking, so that Close can end a blocked Read.
func newStdio() (*stdio, error) {
	for fd := range 2 {
		if err := unix.SetNonblock(fd, true); err != nil {
			return nil, err
		}
	}
	return &stdio{os.NewFile(0, "stdin"), os.NewFile(1, "stdout")}, nil
}

func (s *stdio) Read(b []byte) (int, error)  { return s.in.Read(b) }
func (s *stdio) Write(b []byte) (int, error) { return s.out.Write(b) }
func (s *stdio) Close() error                { return errors.Join(s.in.Close(), s.out.Close()) }
