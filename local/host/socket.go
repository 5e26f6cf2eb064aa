package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/runtime"
)

// OutsideDir is the directory, in a runner's, of the socket that an agent with a
// kernel of its own makes: it can't inherit one.
const OutsideDir = "outside"

// SocketPath is a way to what is in a runner's directory that is short however
// long Dir is: a socket's address holds 108 bytes.
func (h *Host) SocketPath(id runtime.RunnerID, name string) string {
	return filepath.Join("/proc/self/fd", strconv.Itoa(int(h.runners.Fd())), string(id), name)
}

// OpenSocket returns what the helper gets as descriptor 3: a listening socket,
// which only the agent holds afterwards, so that a connection is refused as soon as
// it is dead; or an empty directory for the agent's.
func (h *Host) OpenSocket(id runtime.RunnerID, env runtime.Environment) (*os.File, error) {
	at := h.SocketPath(id, spec.SocketName)
	if env.Isolation == runtime.IsolationGVisor {
		at = h.SocketPath(id, OutsideDir)
		if err := os.RemoveAll(at); err != nil { // of an attempt before
			return nil, err
		}
		if err := os.Mkdir(at, 0o700); err != nil {
			return nil, err
		}
		return os.Open(at)
	}
	if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) { // likewise
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: at})
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	listener.SetUnlinkOnClose(false)
	return listener.File()
}

// Dial connects to a runner's agent, wherever its socket is.
func (h *Host) Dial(ctx context.Context, id runtime.RunnerID) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", h.SocketPath(id, spec.SocketName))
	if !errors.Is(err, fs.ErrNotExist) {
		return conn, err
	}
	// The directory is the runner's own to write to: nothing in it is followed to
	// another socket of the machine.
	fd, err := unix.Openat2(int(h.runners.Fd()), filepath.Join(string(id), OutsideDir, spec.SocketName), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: spec.SocketName, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	return d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", fd))
}
