package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/helper"
)

// A pidfd is a process that existed when it was opened, so it is never confused with a later process
// that has the same id. One goroutine at a time may call Wait; the other methods are safe for
// concurrent use.
type pidfd struct{ file *os.File }

// errHidden says that a process exists, and /proc doesn't show it to this user.
var errHidden = errors.New("/proc is mounted with hidepid, which hides the runners' processes from the server: add gid= with the server's group to that mount, or remove hidepid")

// openPidfd returns the process with this id and start time (see [helper.StartTime]), and an error if
// there is none. Close it.
func openPidfd(pid int, start uint64) (*pidfd, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("pidfd_open: %w", err)
	}
	p := &pidfd{os.NewFile(uintptr(fd), "pidfd")}
	// A process that has this id and start time now is the one that the pidfd was opened for.
	now, err := helper.StartTime(pid)
	if err == nil && now == start {
		return p, nil
	}
	// It lives, although hidepid=1 gives EPERM, and hidepid=2 ENOENT.
	if (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)) && p.Signal(0) != unix.ESRCH {
		err = fmt.Errorf("%w: %w", errHidden, err)
	} else {
		err = errors.Join(fmt.Errorf("process %d is another one: its start time differs", pid), err)
	}
	p.Close()
	return nil, err
}

// Wait waits until the process has ended, in Go's poller, so without a thread. It returns ctx's
// cause if ctx ends first.
func (p *pidfd) Wait(ctx context.Context) error {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	if err := p.file.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = p.file.SetReadDeadline(time.Unix(1, 0)) // in the past
		close(interrupted)
	})
	err = raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return err == nil && n > 0
	})
	if !stop() {
		<-interrupted // else the deadline could interrupt the next Wait
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Signal sends a signal to the process.
func (p *pidfd) Signal(signal syscall.Signal) error {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), signal, nil, 0) })
	return errors.Join(err, sent)
}

// Close releases the pidfd; the process continues.
func (p *pidfd) Close() { _ = p.file.Close() }
