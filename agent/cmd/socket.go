package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/bridge"
)

// A task of Nomad's has no descriptor to inherit: there the agent listens on a
// socket, to which "agent bridge", beside it, connects. Nomad gives every user
// the right to write to a task's directories, those with secrets included, so
// that the agent takes away what user code could use against it.

// becomeRoot makes a task of Nomad's driver exec root: it is nobody by default, as
// which it has what is needed for that, and root only where Nomad is told so.
func becomeRoot() error {
	if os.Geteuid() == 0 || !can(unix.CAP_SETUID) || !can(unix.CAP_SETGID) {
		return nil
	}
	return errors.Join(syscall.Setgroups(nil), syscall.Setgid(0), syscall.Setuid(0))
}

// listenAt listens on a socket that only the agent's own user reaches, in a
// directory that becomes the agent's alone.
func listenAt(path string) (*net.UnixListener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if info.Mode()&os.ModeSticky != 0 {
		return nil, fmt.Errorf("--socket %s: %s is a directory that users share; name one that is the agent's alone", path, dir)
	}
	if err := own(dir, 0o700); err != nil {
		return nil, err
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
		_ = os.Remove(path) // of an agent that ended
	}
	var listener *net.UnixListener
	err = nearby(path, func(address *net.UnixAddr) (err error) {
		listener, err = net.ListenUnix("unix", address)
		return err
	})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	return listener, own(path, 0o600)
}

// nearby calls f with an address of a socket's path that is short, however long
// the path is: a socket's has 107 bytes, and Nomad's directories take most of it.
func nearby(path string, f func(*net.UnixAddr) error) error {
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer func() { _ = unix.Close(dir) }()
	return f(&net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir, filepath.Base(path))})
}

// own gives a path to the agent's user, with this mode.
func own(path string, mode uint32) error {
	if os.Geteuid() == 0 {
		if err := unix.Chown(path, 0, 0); err != nil {
			return &os.PathError{Op: "chown", Path: path, Err: err}
		}
	}
	if err := unix.Chmod(path, mode); err != nil {
		return &os.PathError{Op: "chmod", Path: path, Err: err}
	}
	return nil
}

// makeWorkspace makes the directory that user code works in, if it isn't there.
func makeWorkspace(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return nil
	}
	return own(dir, 0o1777)
}

// protect takes from user code the right to replace the program that the bridge
// will be: the file, and every directory on the way to it. The workspace may be
// one, with the sticky bit.
func protect(workspace string) error {
	if os.Geteuid() != 0 {
		return nil // commands are the agent's own user's: nothing can be kept from them
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	for at := program; ; at = filepath.Dir(at) {
		var stat unix.Stat_t
		if err := unix.Stat(at, &stat); err != nil {
			return &os.PathError{Op: "stat", Path: at, Err: err}
		}
		if at != workspace && changeable(&stat) {
			if err := own(at, stat.Mode&0o7777&^0o022); err != nil {
				return err
			}
		}
		if at == "/" {
			return nil
		}
	}
}

// changeable reports whether user may replace what is in a directory, or write
// to a file.
func changeable(stat *unix.Stat_t) bool {
	switch {
	case stat.Uid == user:
		return true // who could change the mode
	case stat.Gid == user && stat.Mode&0o020 != 0:
		return true
	case stat.Mode&unix.S_IFMT == unix.S_IFDIR && stat.Mode&unix.S_ISVTX != 0:
		return false // of others' entries
	default:
		return stat.Mode&0o002 != 0
	}
}

// own peers only: user code can't be the agent's user.
type peerListener struct{ *net.UnixListener }

// Accept implements net.Listener.
func (l peerListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if isPeer(conn) {
			return conn, nil
		}
		_ = conn.Close()
	}
}

func isPeer(conn *net.UnixConn) bool {
	peer, err := credentials(conn)
	return err == nil && int(peer.Uid) == os.Geteuid()
}

// credentials returns whom the kernel has seen connect.
func credentials(conn *net.UnixConn) (peer *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	if failed := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); failed != nil {
		return nil, failed
	}
	return peer, err
}

// runBridge carries streams between the standard input and output and the
// agent's socket, until the input ends.
func runBridge(path string) error {
	tuneMemory()
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
			err = errno // the server knows the path, or it isn't its business
		}
		return conn, err
	}
	stdio, err := newStdio()
	if err != nil {
		return err
	}
	return bridge.Serve(context.Background(), stdio, dial)
}

// stdio is the standard input and output. Closing it ends a read that waits.
type stdio struct{ in, out *os.File }

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
