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

	"github.com/opencontainers/runc/libcontainer/system"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
)

// An ordinary user's helper is started in a user namespace and a mount namespace
// of its own, where it is root of few ids. It has none when it begins; and who
// has no id when a program is executed gets no capabilities. So it waits for the
// ids, and executes itself.
func awaitUsers(config string) {
	const users = 4
	var told [1]byte
	if n, err := unix.Read(users, told[:]); n != 1 || err != nil {
		os.Exit(1) // who started it says why
	}
	_ = unix.Close(users)
	err := unix.Exec("/proc/self/exe", []string{"rockpool-sandbox", helper.Once, config}, os.Environ())
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// groupsOf returns the trees in which sandboxes have groups; none where an ordinary
// user has none.
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

// ownRun lets an ordinary user's helper make rootMount: in its mount namespace
// /run is another.
func ownRun(c helper.Config) error {
	if strings.HasPrefix(c.State, "/run/") {
		return errors.New("without root the server's data can't be below /run")
	}
	if err := unix.Mount("run", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=64k"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	return nil
}

// endByState ends a sandbox that has no groups, with all that is in it: its first
// process is known from libcontainer's directory. One that has not written that
// yet ends by itself with the helper.
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
		return fmt.Errorf("%s doesn't name a process (%w)", dir, err)
	}
	fd, err := unix.PidfdOpen(state.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if stat, err := system.Stat(state.PID); err != nil || stat.StartTime != state.Start {
		return nil // another has its number
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
