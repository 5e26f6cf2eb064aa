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

// OutsideDir is the directory, in a runner's directory, of the socket of an agent with its own
// kernel: such an agent can't inherit a socket.
const OutsideDir = "outside"

// SocketPath returns a path to a file in a runner's directory that is short even if Dir is long: a
// socket address holds at most 108 bytes (see unix(7)).
func (h *Host) SocketPath(id runtime.RunnerID, name string) string {
	return filepath.Join("/proc/self/fd", strconv.Itoa(int(h.runners.Fd())), string(id), name)
}

// OpenSocket returns the helper's descriptor 3. It is a listening socket that only the agent holds
// afterwards, so that connections are refused as soon as the agent is dead. For an agent with its
// own kernel it is an empty directory for its socket.
func (h *Host) OpenSocket(id runtime.RunnerID, env runtime.Environment) (*os.File, error) {
	at := h.SocketPath(id, spec.SocketName)
	if env.Isolation == runtime.IsolationGVisor {
		at = h.SocketPath(id, OutsideDir)
		if err := os.RemoveAll(at); err != nil { // left by an earlier attempt
			return nil, err
		}
		if err := os.Mkdir(at, 0o700); err != nil {
			return nil, err
		}
		return os.Open(at)
	}
	if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) { // left by an earlier attempt
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: at})
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	// The agent gets a copy of this descriptor. Closing this one must not delete the socket.
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
	// The runner can write to this directory, so no symbolic link in it is followed: it could lead
	// to another socket of the machine.
	fd, err := unix.Openat2(int(h.runners.Fd()), filepath.Join(string(id), OutsideDir, spec.SocketName), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: spec.SocketName, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	return d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", fd))
}
