package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// listenAt listens on a socket that only the agent's user can connect to. It makes the socket's
// directory private to the agent.
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
		return nil, fmt.Errorf("--socket %s: other users can write to the directory %s; name a directory for the agent alone", path, dir)
	}
	if err := own(dir, 0o700); err != nil {
		return nil, err
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
		_ = os.Remove(path) // left by an agent that has ended
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

// nearby calls f with a short address for the socket's path, however long the path is. An address
// has at most 107 bytes, and Nomad's directories take most of them.
func nearby(path string, f func(*net.UnixAddr) error) error {
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer func() { _ = unix.Close(dir) }()
	return f(&net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir, filepath.Base(path))})
}

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

// orphanCheck is the interval in which an agent on Nomad checks that its socket exists.
const orphanCheck = 5 * time.Second

// endWhenOrphaned ends the program, as Nomad would, when the socket at path is missing or another
// agent's. Then no client can reach the agent or end its commands. Nomad leaves such tasks behind
// if its client is killed before it has recorded that a task started or stopped.
func endWhenOrphaned(path string) error {
	own, err := os.Lstat(path)
	if err != nil {
		return err
	}
	go func() { // until the program ends
		for range time.Tick(orphanCheck) {
			now, err := os.Lstat(path)
			if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(own, now) {
				_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
			}
		}
	}()
	return nil
}
