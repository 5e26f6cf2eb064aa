package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

// In a runner with a kernel of its own (gVisor) no listening socket can be
// inherited: there the agent makes one in a directory of the machine's, and
// serves only who comes from outside of that kernel. The directory is root's
// alone, but a privileged command is root too.

// serveOutside serves on a socket at a path that leads to the machine. What goes
// wrong until it listens is told on the standard error; then it says ready on the
// standard output, and lets go of both.
func serveOutside(path string, processes int, o options) error {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	if err != nil {
		return err
	}
	listener.SetUnlinkOnClose(false)
	if err := unix.Chmod(path, 0o600); err != nil {
		return &os.PathError{Op: "chmod", Path: path, Err: err}
	}
	if processes > 0 {
		if o.inner, err = limitInside(processes); err != nil {
			return fmt.Errorf("the limit of processes: %w", err)
		}
	}
	o.ready = letGo
	return serveOn(outsideListener{listener}, o)
}

// letGo says that the agent serves, and gives the descriptors 0 to 2 back: who
// made the runner waits for either.
func letGo() error {
	if _, err := os.Stdout.WriteString(agent.Ready); err != nil {
		return err
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	for fd := range 3 {
		if err := unix.Dup3(null, fd, 0); err != nil {
			return err
		}
	}
	return unix.Close(null)
}

// An outsideListener refuses peers of the runner's own.
type outsideListener struct{ *net.UnixListener }

// Accept implements net.Listener.
func (l outsideListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		// Whoever has no number here is not of this kernel.
		if peer, err := credentials(conn); err == nil && peer.Pid == 0 {
			return conn, nil
		}
		_ = conn.Close()
	}
}

// The control group of a runner with a kernel of its own, which that kernel
// keeps: its processes are none of the machine's. The agent is in it too, since a
// command that starts in another costs more than it would be worth.
const (
	innerTree  = "/sys/fs/cgroup"
	innerGroup = innerTree + "/all"
)

// limitInside has the runner's own kernel hold a limit of processes, with
// everything that runs now in it, and reads it back.
func limitInside(processes int) (*innerCounts, error) {
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
	return &innerCounts{events: events, limit: limit}, nil
}

// innerCounts are what the runner's own kernel counts.
type innerCounts struct {
	events int
	limit  string

	mu    sync.Mutex // guards what is below
	holds int
}

// hold has every fork refused until what it returns is called: without that, who
// forks faster than this kernel lists processes would be killed for ever. It is
// for a runner that is full, where the others' forks are refused too.
func (c *innerCounts) hold() (release func()) {
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

// refused returns how many forks were refused since the runner began.
func (c *innerCounts) refused() int64 {
	var text [64]byte
	n, err := unix.Pread(c.events, text[:], 0)
	if err != nil {
		return 0
	}
	_, number, _ := strings.Cut(strings.TrimSpace(string(text[:n])), " ")
	count, _ := strconv.ParseInt(number, 10, 64)
	return count
}
