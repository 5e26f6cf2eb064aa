package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime/backoff"
)

// Remove kills all processes in a cgroup, in every tree, waits until they have ended, and deletes
// the cgroups. A missing cgroup is success. It also works for a sandbox that was killed while being
// made, and joined only some trees. It returns an error when ctx ends.
func (all Hierarchies) Remove(ctx context.Context, path string) error {
	var dirs []string
	for _, h := range all {
		dir := filepath.Join(h.Mount, path)
		there, err := exists(dir)
		if err != nil {
			return err
		}
		if there {
			dirs = append(dirs, dir)
		}
	}
	if len(dirs) == 0 {
		return nil
	}
	// Usually every process is in every tree, so killing those of one tree is enough. The kernel
	// doesn't delete a cgroup with processes or cgroups below; then every tree is searched.
	if err := kill(ctx, dirs[:1]); err != nil {
		return err
	}
	dirs = slices.DeleteFunc(dirs, removeKnown)
	if len(dirs) == 0 {
		return nil
	}
	if err := kill(ctx, dirs); err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := removeTree(ctx, dir); err != nil {
			return err
		}
	}
	return nil
}

// removeKnown deletes a cgroup and those that Divide makes below it, and reports whether it is
// gone.
func removeKnown(dir string) bool {
	for i := range Slots + 1 {
		_ = unix.Rmdir(filepath.Join(dir, Commands, slotName(i)))
	}
	_ = unix.Rmdir(filepath.Join(dir, Commands))
	_ = unix.Rmdir(filepath.Join(dir, Agent))
	err := unix.Rmdir(dir)
	return err == nil || err == unix.ENOENT
}

// Prune deletes a cgroup, and those above it, in every tree, if they are empty.
func (all Hierarchies) Prune(path string) {
	for ; path != "/"; path = filepath.Dir(path) {
		for _, h := range all {
			_ = unix.Rmdir(filepath.Join(h.Mount, path))
		}
	}
}

// kill ends all processes in dirs and below. New ones can appear meanwhile, so it repeats until it
// finds none.
func kill(ctx context.Context, dirs []string) error {
	for _, dir := range dirs {
		// cgroup.kill (version 2, Linux 5.14) kills all processes with one write.
		_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
	}
	for {
		var ends []unix.PollFd
		for _, dir := range dirs {
			found, err := killOnce(dir)
			if err != nil {
				closeAll(ends)
				return err
			}
			ends = append(ends, found...)
		}
		if len(ends) == 0 {
			return nil
		}
		// A pidfd is readable when its process has ended.
		_, err := unix.Poll(ends[:1], 100)
		closeAll(ends)
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("poll: %w", err)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("its processes don't end: %w", context.Cause(ctx))
		}
	}
}

// killOnce kills the processes in dir and below now, and returns a pidfd of each.
func killOnce(dir string) ([]unix.PollFd, error) {
	var ends []unix.PollFd
	err := filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !d.IsDir() {
			return err
		}
		pids, err := Processes(at)
		if err != nil {
			return err
		}
		for _, pid := range pids {
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				continue // it has ended
			}
			// The id may have been reused for another process meanwhile.
			if still, err := Processes(at); err == nil && slices.Contains(still, pid) {
				_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
				ends = append(ends, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
			} else {
				_ = unix.Close(fd)
			}
		}
		return nil
	})
	return ends, err
}

func closeAll(fds []unix.PollFd) {
	for _, p := range fds {
		_ = unix.Close(int(p.Fd))
	}
}

// Processes returns the ids of a cgroup's processes; none if the cgroup is missing.
func Processes(dir string) ([]int, error) {
	text, err := readFile(filepath.Join(dir, "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, field := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil || pid <= 0 {
			return nil, fmt.Errorf("%s: process %s is outside this pid namespace", dir, field)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// removeTree deletes a cgroup and those below it. The kernel returns EBUSY for a short while after
// a cgroup's last process has ended.
func removeTree(ctx context.Context, dir string) error {
	var below []string
	err := filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			below = append(below, at)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	// WalkDir visits a directory before those below it. The reverse order deletes those first.
	for _, at := range slices.Backward(below) {
		for pauses := (backoff.Backoff{First: time.Millisecond, Last: 50 * time.Millisecond}); ; {
			err := unix.Rmdir(at)
			if err == nil || err == unix.ENOENT {
				break
			}
			if err != unix.EBUSY {
				return fmt.Errorf("remove %s: %w", at, err)
			}
			if err := pauses.Wait(ctx); err != nil {
				return fmt.Errorf("%s stays busy: %w", at, err)
			}
		}
	}
	return nil
}
