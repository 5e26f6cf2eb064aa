// Package process holds on to a process of this machine by a pidfd, so that it is
// never taken for another one that has its id later.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Process is one that was there when it was opened. Wait is called by one
// goroutine at a time; the other methods may be called at once.
type Process struct{ pidfd *os.File }

// Open returns the process that has this id and was started at this time (see
// [StartTime]), and an error if there is none.
func Open(pid int, start uint64) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("pidfd_open: %w", err)
	}
	p := &Process{os.NewFile(uintptr(fd), "pidfd")}
	// What has the id and the start time now had the id then too.
	if now, err := StartTime(pid); err != nil || now != start {
		p.Close()
		return nil, errors.Join(fmt.Errorf("process %d isn't the one that was started", pid), err)
	}
	return p, nil
}

// StartTime returns when a process started, in clock ticks since the machine's
// start, as /proc shows it.
func StartTime(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is a name in parentheses, which can hold anything; the
	// start time is the 22nd.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return 0, errors.New("unknown format of /proc/<pid>/stat")
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// Wait waits in Go's poller, without a thread, until the process has ended. It
// returns ctx's cause if ctx ends before.
func (p *Process) Wait(ctx context.Context) error {
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	if err := p.pidfd.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = p.pidfd.SetReadDeadline(time.Unix(1, 0)) // long ago
		close(interrupted)
	})
	err = raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return err == nil && n > 0
	})
	if !stop() {
		<-interrupted // or it might interrupt the next wait
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Signal sends a signal to the process.
func (p *Process) Signal(signal syscall.Signal) error {
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), signal, nil, 0) })
	return errors.Join(err, sent)
}

// Close lets go of the process, which goes on.
func (p *Process) Close() { _ = p.pidfd.Close() }
