package groups

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// The group of a runner with a kernel of its own (gVisor), which that kernel keeps: its processes
// are none of the machine's. The agent is in it too, since a command that starts in another costs
// more than it would be worth.
const (
	innerTree  = "/sys/fs/cgroup"
	innerGroup = innerTree + "/all"
)

// LimitInner makes the runner's own kernel limit processes, including all that run now, and reads
// the limit back.
func LimitInner(processes int) (*Inner, error) {
	if err := os.Mkdir(innerGroup, 0o755); err != nil {
		return nil, err
	}
	limit := strconv.Itoa(processes)
	for _, set := range []struct{ file, text string }{
		{innerGroup + "/cgroup.procs", "0"}, // first: only the groups below may have some
		{innerTree + "/cgroup.subtree_control", "+pids"},
		{innerGroup + "/pids.max", limit},
	} {
		if err := os.WriteFile(set.file, []byte(set.text), 0); err != nil {
			return nil, err
		}
	}
	got, err := os.ReadFile(innerGroup + "/pids.max")
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(string(got)) != limit || !strings.Contains(string(own), "0::/all\n") {
		return nil, fmt.Errorf("it is %q in %q, not %s in /all", got, own, limit)
	}
	events, err := unix.Open(innerGroup+"/pids.events", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &Inner{events: events, limit: limit}, nil
}

// Inner is the group of all that runs in a runner with a kernel of its own. Its methods are safe
// for concurrent use.
type Inner struct {
	events int
	limit  string

	mu    sync.Mutex // guards what is below
	holds int
}

// Hold refuses every fork until release is called: without that, the killing of a program that
// forks faster than this kernel lists processes would never end. It is for a runner that is full,
// where other forks are refused anyway.
func (c *Inner) Hold() (release func()) {
	set := func(by int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.holds += by
		limit := c.limit
		if c.holds > 0 {
			limit = "0"
		}
		_ = os.WriteFile(innerGroup+"/pids.max", []byte(limit), 0) // it was written before
	}
	set(1)
	return func() { set(-1) }
}

// Refused returns how many forks were refused since the runner began.
func (c *Inner) Refused() int64 {
	var text [64]byte
	n, err := unix.Pread(c.events, text[:], 0)
	if err != nil {
		return 0
	}
	_, number, _ := strings.Cut(strings.TrimSpace(string(text[:n])), " ")
	count, _ := strconv.ParseInt(number, 10, 64)
	return count
}
