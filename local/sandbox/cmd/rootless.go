package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
)

// awaitUsers waits for this process's user ids, then executes the program again. A helper without
// root starts in its own user namespace and mount namespace, where it is root of few ids. At first
// it has no ids, and a process without ids loses its capabilities when it executes a program.
func awaitUsers(config string) {
	const users = 4
	var signal [1]byte
	if n, err := unix.Read(users, signal[:]); n != 1 || err != nil {
		os.Exit(1) // the parent reports why
	}
	_ = unix.Close(users)
	err := unix.Exec("/proc/self/exe", []string{"rockpool-sandbox", helper.Once, config}, os.Environ())
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// groupsOf returns the cgroup trees for sandboxes; none if an ordinary user has no delegated
// cgroup.
func groupsOf(c helper.Config) (cgroup.Hierarchies, error) {
	switch r := c.Rootless; {
	case r == nil:
		return cgroup.Mounted()
	case r.Base == "":
		return nil, nil
	default:
		return cgroup.Below(r.Base)
	}
}

// ownRun lets a helper without root make rootMount: it mounts its own /run in its mount namespace.
func ownRun(c helper.Config) error {
	if strings.HasPrefix(c.State, "/run/") {
		return errors.New("without root, the server's data directory must not be below /run")
	}
	if err := unix.Mount("run", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=64m"); err != nil { // a view has a page for each of its files
		return fmt.Errorf("mount /run: %w", err)
	}
	return nil
}

// endByState ends a sandbox without cgroups: libcontainer's state names its first process, and all
// others end with that. A sandbox whose state isn't written yet ends with its helper.
func endByState(ctx context.Context, dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "state.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var state struct {
		PID   int    `json:"init_process_pid"`
		Start uint64 `json:"init_process_start"`
	}
	if err := json.Unmarshal(text, &state); err != nil || state.PID <= 1 {
		return fmt.Errorf("%s names no process: %w", dir, err)
	}
	fd, err := unix.PidfdOpen(state.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if start, err := helper.StartTime(state.PID); err != nil || start != state.Start {
		return nil // another process has this id
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("end process %d: %w", state.PID, err)
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if n > 0 || err != nil && err != unix.EINTR {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("process %d doesn't end: %w", state.PID, context.Cause(ctx))
		}
	}
}
