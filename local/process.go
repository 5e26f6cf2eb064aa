package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// openProcess returns a pidfd of the process that has this id and was started
// at this time (in clock ticks since the machine's start, as /proc says), and
// an error if there is none: an id alone may have been given to another.
func openProcess(pid int, start uint64) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("pidfd_open: %w", err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	// What has the id and the start time now had the id then too.
	if now, err := startTime(pid); err != nil || now != start {
		_ = f.Close()
		return nil, errors.Join(fmt.Errorf("process %d isn't the one that was started", pid), err)
	}
	return f, nil
}

func startTime(pid int) (uint64, error) {
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

// awaitEnd waits in Go's poller, without a thread, until the process of a
// pidfd has ended, and returns an error if ctx ends before.
func awaitEnd(ctx context.Context, process *os.File) error {
	raw, err := process.SyscallConn()
	if err != nil {
		return err
	}
	if err := process.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = process.SetReadDeadline(time.Unix(1, 0)) // long ago
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
