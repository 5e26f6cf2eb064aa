// Package task serves as a task of Nomad's, which inherits no descriptor: the agent listens on a
// socket, to which "agent bridge", beside it, connects. Nomad lets every user write to a task's
// directories, including those with secrets, so the agent takes away what user code could use
// against it.
package task

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/confinement"
	"github.com/rockpool/rockpool/agent/cmd/host"
	"github.com/rockpool/rockpool/agent/cmd/peer"
)

// ErrNotRoot says that this process isn't root of its task, and can't become it. Then commands would
// run as the agent's own user, and nothing could be kept from them.
var ErrNotRoot = errors.New("it must be root in its task, or have what it takes to become it")

// Serve serves on a socket that it makes. It always returns an error: [ErrNotRoot], for example.
func Serve(socket string, network bool, o host.Options) error {
	workspace, err := filepath.Abs(o.Workspace)
	if err != nil {
		return err
	}
	if err := becomeRoot(); err != nil {
		return err
	}
	if os.Geteuid() != 0 && !o.Degraded {
		return ErrNotRoot
	}
	o.Workspace, o.Task = workspace, true
	if err := errors.Join(makeWorkspace(workspace), protect(workspace)); err != nil {
		return err
	}
	listener, err := listenAt(socket)
	if err != nil {
		return err
	}
	if err := endWhenOrphaned(socket); err != nil {
		return err
	}
	if mustNest() {
		return nest(listener, workspace, network)
	}
	if !network {
		return errors.New("--no-network: only root of the machine, as with the driver raw_exec, can make a network namespace; elsewhere it is the driver's setting")
	}
	return host.Serve(peer.OwnUser(listener), o)
}

// becomeRoot makes a task of Nomad's driver exec root. By default such a task is nobody, with the
// capabilities for that.
func becomeRoot() error {
	if os.Geteuid() == 0 || !confinement.Can(unix.CAP_SETUID) || !confinement.Can(unix.CAP_SETGID) {
		return nil
	}
	return errors.Join(syscall.Setgroups(nil), syscall.Setgid(0), syscall.Setuid(0))
}

// makeWorkspace makes the workspace, if it isn't there.
func makeWorkspace(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return nil
	}
	return own(dir, 0o1777)
}

// protect takes from user code the right to replace this program, which the bridge will execute:
// the file, and every directory on the way to it. The workspace may be one of these, with the
// sticky bit.
func protect(workspace string) error {
	if os.Geteuid() != 0 {
		return nil // commands run as the agent's own user: nothing can be kept from them
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

// changeable reports whether the user of commands may replace what is in a directory, or write
// to a file.
func changeable(stat *unix.Stat_t) bool {
	switch {
	case stat.Uid == confinement.User:
		return true // an owner can change the mode
	case stat.Gid == confinement.User && stat.Mode&0o020 != 0:
		return true
	case stat.Mode&unix.S_IFMT == unix.S_IFDIR && stat.Mode&unix.S_ISVTX != 0:
		return false // entries of others are safe
	default:
		return stat.Mode&0o002 != 0
	}
}
