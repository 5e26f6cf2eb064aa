package groups

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// The groups of a runner with its own kernel (gVisor): one of the agent, and one of all commands. That
// kernel enforces the limit of processes there, since they aren't processes of the machine.
const (
	guestTree     = "/sys/fs/cgroup"
	guestAgent    = guestTree + "/agent"
	guestCommands = guestTree + "/all"
)

// Limits are those of the commands of a runner with its own kernel. That kernel enforces only
// Processes. It shows the others to programs; the machine enforces them.
type Limits struct {
	Processes int
	MemoryMiB int
	CPUQuota  int // microseconds of CPU time in each 100 ms
}

// LimitGuest sets the limits of the runner's own kernel. It reads that of processes back, and returns
// an error if the kernel didn't apply it.
func LimitGuest(l Limits) (*GuestGroup, error) {
	for _, group := range []string{guestAgent, guestCommands} {
		if err := os.Mkdir(group, 0o755); err != nil {
			return nil, err
		}
	}
	limit := strconv.Itoa(l.Processes)
	for _, set := range []struct{ file, text string }{
		{guestAgent + "/cgroup.procs", "0"}, // first: only groups at the end of the tree may have processes
		{guestTree + "/cgroup.subtree_control", "+pids +memory +cpu"},
		{guestCommands + "/pids.max", limit},
		{guestCommands + "/memory.max", strconv.FormatInt(int64(l.MemoryMiB)<<20, 10)},
		{guestCommands + "/cpu.max", strconv.Itoa(l.CPUQuota) + " 100000"},
	} {
		if err := os.WriteFile(set.file, []byte(set.text), 0); err != nil {
			return nil, err
		}
	}
	got, err := os.ReadFile(guestCommands + "/pids.max")
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(string(got)) != limit {
		return nil, fmt.Errorf("the limit is %q, expected %s", got, limit)
	}
	directory, err := unix.Open(guestCommands, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	events, err := unix.Open(guestCommands+"/pids.events", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &GuestGroup{Directory: directory, events: events, limit: limit}, nil
}

// A GuestGroup is the group of all commands in a runner with its own kernel. Its methods are safe for
// concurrent use.
type GuestGroup struct {
	Directory int // its descriptor

	events int    // descriptor of the group's pids.events
	limit  string // of processes

	mu    sync.Mutex // guards holds
	holds int        // calls of Hold that weren't released
}

// Hold makes the kernel refuse every fork until release is called. Without it, killing a program
// that forks faster than this kernel lists processes would never end. Use it in a runner that is
// full, where other forks are refused anyway.
func (c *GuestGroup) Hold() (release func()) {
	set := func(by int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.holds += by
		limit := c.limit
		if c.holds > 0 {
			limit = "0"
		}
		_ = os.WriteFile(guestCommands+"/pids.max", []byte(limit), 0) // LimitGuest wrote the same successfully
	}
	set(1)
	return func() { set(-1) }
}

// Refused returns the number of forks that were refused since the runner's start.
func (c *GuestGroup) Refused() int64 {
	var text [64]byte
	n, _ := unix.Pread(c.events, text[:], 0)
	return sum(text[:max(n, 0)], "max")
}
