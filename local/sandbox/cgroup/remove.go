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

// Remove kills everything in the group that path names, in every tree, waits
// until it is gone, and deletes the groups; what isn't there is success. It
// serves a sandbox whose making was interrupted too, which may have joined
// some trees only.
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
	// Usually every process is in every tree, so killing those of one is enough. The kernel keeps a
	// group that still has a process or a group below it; then every tree is looked through.
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

// removeKnown deletes a group and those that Divide makes below it, and reports whether they are gone.
func removeKnown(dir string) bool {
	for i := range Slots + 1 {
		_ = unix.Rmdir(filepath.Join(dir, Commands, slotName(i)))
	}
	_ = unix.Rmdir(filepath.Join(dir, Commands))
	_ = unix.Rmdir(filepath.Join(dir, Agent))
	err := unix.Rmdir(dir)
	return err == nil || err == unix.ENOENT
}

// Prune deletes the group that path names, in every tree, where nothing is in
// it.
func (all Hierarchies) Prune(path string) {
	for _, h := range all {
		_ = unix.Rmdir(filepath.Join(h.Mount, path))
	}
}

// kill ends all processes in dirs and below. New ones can appear while it
// works, so it looks again until it finds none.
func kill(ctx context.Context, dirs []string) error {
	for _, dir := range dirs {
		// Where there is cgroup.kill (version 2, Linux 5.14), one write gets all.
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
			return fmt.Errorf("processes don't end: %w", context.Cause(ctx))
		}
	}
}

// killOnce kills what is in dir and below now, and returns a pidfd of each.
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
				continue // gone
			}
			// The number may have been given to another process meanwhile.
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

// Processes returns the ids of the processes in a group's directory, none if
// it isn't there.
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
			return nil, fmt.Errorf("%s: a process that can't be seen from here (%s)", dir, field)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// removeTree deletes a group and those below it. The kernel says EBUSY for a
// short while after the last process of a group ended.
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
