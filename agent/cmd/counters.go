package main

import (
	"bytes"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/serve"
)

// Counters are what the kernel counts for a group. They only grow, and the group
// is used again, so that what they were at a command's start is taken off.
type counters struct {
	trees map[string]int
	name  string
	start counts
	peak  int64 // the most processes that were seen
}

// Counts are the counters at a time.
type counts struct {
	refused, oomKills  int64
	cpu                int64 // nanoseconds, as the scheduler counts them
	user, system       int64 // likewise, as the kernel guesses from whom its timer interrupts
	read, written      int64
	memory, mostMemory int64
	mostProcesses      int64
}

// begin notes the counters before a command is started.
func (c *counters) begin() {
	if tree, ok := c.trees["memory"]; ok {
		_ = write(tree, c.name+"/memory.max_usage_in_bytes", "0")
	}
	c.start, c.peak = c.now(), 0
}

func (c *counters) now() (n counts) {
	n.refused = c.number("pids", "pids.events", "max")
	n.mostProcesses = c.number("pids", "pids.peak", "")
	n.oomKills = c.number("memory", "memory.oom_control", "oom_kill")
	n.memory = c.number("memory", "memory.usage_in_bytes", "")
	n.mostMemory = c.number("memory", "memory.max_usage_in_bytes", "")
	n.cpu = c.number("cpuacct", "cpuacct.usage", "")
	n.user = c.number("cpuacct", "cpuacct.usage_user", "")
	n.system = c.number("cpuacct", "cpuacct.usage_sys", "")
	if c.has("blkio") {
		n.read = c.number("blkio", "blkio.throttle.io_service_bytes", "Read")
		n.written = c.number("blkio", "blkio.throttle.io_service_bytes", "Write")
	}
	return n
}

func (c *counters) has(controller string) bool { _, ok := c.trees[controller]; return ok }

// cpu returns the processor time since the start.
func (c *counters) cpu() time.Duration {
	return time.Duration(c.number("cpuacct", "cpuacct.usage", "") - c.start.cpu)
}

// refused returns how many forks were refused since the start, and notes how
// many processes there are.
func (c *counters) refused() int64 {
	// One is the launcher's thread.
	c.peak = max(c.peak, c.number("pids", "pids.current", "")-1)
	return c.number("pids", "pids.events", "max") - c.start.refused
}

// end adds what was counted since the start to what the waits told.
func (c *counters) end(u *serve.Usage) {
	end := c.now()
	u.Own = true
	u.Refused, u.OOMKills = end.refused-c.start.refused, end.oomKills-c.start.oomKills
	// Nobody waited for the rest; only how it is to be divided is a guess.
	if rest := time.Duration(end.cpu-c.start.cpu) - u.User - u.System; rest > 0 {
		user := min(rest, max(0, time.Duration(end.user-c.start.user)-u.User))
		u.User += user
		u.System += rest - user
	}
	// What an earlier command left in files isn't this one's.
	u.PeakMemory = max(u.PeakMemory, end.mostMemory-c.start.memory)
	u.PeakProcesses = int(max(c.peak, 1))
	if end.mostProcesses > c.start.mostProcesses {
		u.PeakProcesses = int(end.mostProcesses - 1)
	}
	if c.has("blkio") {
		read, written := end.read-c.start.read, end.written-c.start.written
		u.BytesRead, u.BytesWritten = &read, &written
	}
}

// number reads a number: the only one of a file, or the sum of those on lines on
// which it follows key. What can't be read is 0.
func (c *counters) number(controller, file, key string) (all int64) {
	tree, ok := c.trees[controller]
	if !ok {
		return 0
	}
	fd, err := openIn(tree, c.name+"/"+file, unix.O_RDONLY)
	if err != nil {
		return 0
	}
	defer func() { _ = unix.Close(fd) }()
	var buf [2048]byte
	n, _ := unix.Read(fd, buf[:])
	for line := range bytes.Lines(buf[:max(n, 0)]) {
		name, value := []byte(nil), bytes.TrimSpace(line)
		if i := bytes.LastIndexByte(value, ' '); i >= 0 {
			name, value = value[:i], value[i+1:]
		}
		if i := bytes.LastIndexByte(name, ' '); i >= 0 {
			name = name[i+1:] // a line of blkio begins with its device
		}
		if string(name) == key {
			number, _ := strconv.ParseInt(string(value), 10, 64)
			all += number
		}
	}
	return all
}
