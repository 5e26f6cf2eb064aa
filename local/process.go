package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime"
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
// pidfd has ended, and returns an error if process is closed before.
func awaitEnd(process *os.File) error {
	raw, err := process.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return err == nil && n > 0
	})
}

// watch waits until e's first process has ended, and with it everything else
// in its sandbox. If nobody removes e, it is GONE for what the kernel counted.
func (c *Cluster) watch(e *entry, process *os.File) {
	ended := awaitEnd(process)
	c.mu.Lock()
	e.process = nil
	seen := e.oomSeen
	c.mu.Unlock()
	_ = process.Close()
	if ended != nil {
		return // closed: it is being removed
	}
	reason, message := runtime.GoneAgentDied, "the agent ended"
	if last, err := c.count(e); err == nil && last.OOMKills > seen {
		reason, message = runtime.GoneOutOfMemory, "the kernel killed the agent because the runner's memory was full"
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanWithin)
	defer cancel()
	if err := c.end(ctx, e, reason, message); err != nil {
		c.log.Warn("a runner's end wasn't stored", zap.String("runner", string(e.id)), zap.Error(err))
	}
	c.changes.send(e.environment)
}

// Evidence implements runtime.Cluster. What was counted last stays known until
// the runner is removed.
func (c *Cluster) Evidence(ctx context.Context, id runtime.RunnerID) (runtime.Evidence, error) {
	if ctx.Err() != nil {
		return runtime.Evidence{}, context.Cause(ctx)
	}
	c.mu.Lock()
	e, ok := c.entries[id]
	var last *runtime.Evidence
	if ok {
		last = e.evidence
	}
	starting := ok && e.runner.State == runtime.RunnerStarting
	c.mu.Unlock()
	switch {
	case !ok:
		return runtime.Evidence{}, gone(id)
	case starting:
		return runtime.Evidence{}, nil
	}
	now, err := c.count(e)
	if err != nil && last == nil {
		return runtime.Evidence{}, gone(id)
	}
	if err != nil {
		return *last, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e.oomSeen = max(e.oomSeen, now.OOMKills)
	return now, nil
}

// count reads e's counters, and keeps them.
func (c *Cluster) count(e *entry) (runtime.Evidence, error) {
	c.mu.Lock()
	groups := e.groups
	c.mu.Unlock()
	if groups == nil {
		return runtime.Evidence{}, errors.New("it was never made")
	}
	kills, hits, err := groups.Counts()
	if err != nil {
		return runtime.Evidence{}, err
	}
	now := runtime.Evidence{OOMKills: kills, ProcessLimitHits: hits}
	c.mu.Lock()
	defer c.mu.Unlock()
	e.evidence = &now
	return now, nil
}
