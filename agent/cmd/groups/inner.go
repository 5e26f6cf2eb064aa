package groups

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// The group of a runner with its own kernel (gVisor). That kernel enforces it, since its processes
// aren't processes of the machine. The agent is in it too, because starting each command in another
// group would be slower than that is worth.
const (
	innerTree  = "/sys/fs/cgroup"
	innerGroup = innerTree + "/all"
)

// LimitInner makes the runner's own kernel limit the number of processes, including those that run
// now. It reads the limit back, and returns an error if the kernel didn't apply it.
func LimitInner(processes int) (*Inner, error) {
	if err := os.Mkdir(innerGroup, 0o755); err != nil {
		return nil, err
	}
	limit := strconv.Itoa(processes)
	for _, set := range []struct{ file, text string }{
		{innerGroup + "/cgroup.procs", "0"}, // first: only groups at the end of the tree may have processes
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
		return nil, fmt.Errorf("the limit is %q in %q, expected %s in /all", got, own, limit)
	}
	events, err := unix.Open(innerGroup+"/pids.events", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &Inner{events: events, limit: limit}, nil
}

// Inner is the group of all processes in a runner with its own kernel. Its methods are safe for
// concurrent use.
type Inner struct {
	events int    // descriptor of the group's pids.events
	limit  string // of processes

	mu    sync.Mutex // guards holds
	holds int        // calls of Hold that weren't released
}

// Hold makes the kernel refuse every fork until release is called. Without it, killing a program
// that forks faster than this kernel lists processes would never end. Use it in a runner that is
// full, where other forks are refused anyway.
func (c *Inner) Hold() (release func()) {
	set := func(by int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.holds += by
		limit := c.limit
		if c.holds > 0 {
			limit = "0"
		}
		_ = os.WriteFile(innerGroup+"/pids.max", []byte(limit), 0) // LimitInner wrote the same successfully
	}
	set(1)
	return func() { set(-1) }
}

// Refused returns the number of forks that were refused since the runner's start.
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
