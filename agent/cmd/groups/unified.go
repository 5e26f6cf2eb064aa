package groups

import (
	"bytes"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/confinement"
	"github.com/rockpool/rockpool/agent/cmd/launch"
)

// openUnified opens a group of version 2, below the directory run. Commands of users start on t,
// those of root on a thread whose bounding set isn't empty.
func openUnified(run int, name string, root bool, t *confinement.Thread, fork func(group int) launch.Func, together *refusals) (*Group, error) {
	dir, err := openIn(run, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	one := &Group{Launch: fork(dir), Counters: Counters{trees: map[string]int{unified: run}, name: name, kept: newKeptFiles(), together: together}}
	if io, err := openIn(dir, "io.stat", unix.O_RDONLY); err == nil {
		one.devices = true
		_ = unix.Close(io)
	}
	if !root {
		one.Launch = one.Launch.On(t)
	}
	return one, nil
}

// nowUnified is now where cgroups are of version 2.
func (c *Counters) nowUnified() (n counts) {
	n.refused = c.number("pids", "pids.events", "max")
	if !c.whole {
		n.refusedTogether = c.together.of(c)
	}
	n.mostProcesses = c.number("pids", "pids.peak", "")
	n.oomKills = c.number("memory", "memory.events", "oom_kill")
	n.memory = c.memoryNow()
	n.mostMemory = c.readPeak()
	if !c.whole { // the agent's is in it
		n.cpu, n.user, n.system = c.processorTime()
	}
	n.read, n.written = c.bytes()
	return n
}

// Refusals are the forks that were refused because of the limit of all commands together: from
// Linux 6.11 on the kernel counts these for the limit, and doesn't say whose they were. Each is
// charged to one group, or to none. Its methods are safe for concurrent use.
type refusals struct {
	mu   sync.Mutex       // guards what is below
	seen int64            // the kernel's count when it was read last
	by   map[string]int64 // the forks of each group
}

// of returns how many are charged to c's group. What the kernel counted since the last
// call for any group is charged to the group with the most processes, if all groups
// together are at the limit, or if that group has more than half of it. Otherwise no
// group is charged. The lock covers the reads: the sizes belong to the count that was
// read with them.
func (r *refusals) of(c *Counters) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := c.of(".").number("pids", "pids.events.local", "max"); now > r.seen {
		if name := c.largest(); name != "" {
			r.by[name] += now - r.seen
		}
		r.seen = now
	}
	return r.by[c.name]
}

// largest returns the group with the most processes, if all together are at their
// limit or it has more than half of it; otherwise "".
func (c *Counters) largest() (name string) {
	var most int64
	for _, group := range []string{groupName(0), groupName(1), restGroups} {
		if n := c.of(group).number("pids", "pids.current", ""); n > most {
			name, most = group, n
		}
	}
	all := c.of(".")
	limit := all.number("pids", "pids.max", "")
	if 2*most > limit || all.number("pids", "pids.current", "") >= limit {
		return name
	}
	return ""
}

// of returns the counters of another group.
func (c *Counters) of(name string) *Counters {
	return &Counters{trees: c.trees, name: name, kept: c.kept}
}

// processorTime returns it in nanoseconds: all, the user's, and the system's.
func (c *Counters) processorTime() (all, user, system int64) {
	var buf [1024]byte
	for line := range bytes.Lines(c.text(buf[:], "cpuacct", "cpu.stat")) {
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		number, _ := strconv.ParseInt(string(value), 10, 64)
		switch string(name) {
		case "usage_usec":
			all = number * 1000
		case "user_usec":
			user = number * 1000
		case "system_usec":
			system = number * 1000
		}
	}
	return all, user, system
}

// bytes returns what was read from devices and written to them.
func (c *Counters) bytes() (read, written int64) {
	var buf [2048]byte
	for line := range bytes.Lines(c.text(buf[:], "blkio", "io.stat")) { // device rbytes=1 wbytes=2 …
		for field := range bytes.FieldsSeq(line) {
			name, value, _ := bytes.Cut(field, []byte("="))
			number, _ := strconv.ParseInt(string(value), 10, 64)
			switch string(name) {
			case "rbytes":
				read += number
			case "wbytes":
				written += number
			}
		}
	}
	return read, written
}

// forgetPeak makes the peak of memory count from now on, where the kernel can (from Linux 6.12
// on).
func (c *Counters) forgetPeak() {
	if c.memoryPeak == nil {
		fd, err := openIn(c.tree("memory"), c.name+"/memory.peak", unix.O_RDWR)
		if err != nil {
			return
		}
		c.memoryPeak = os.NewFile(uintptr(fd), "memory.peak")
	}
	if _, err := c.memoryPeak.WriteAt([]byte("0"), 0); err != nil {
		_ = c.memoryPeak.Close()
		c.memoryPeak = nil
	}
}

func (c *Counters) readPeak() int64 {
	if c.memoryPeak == nil {
		return c.number("memory", "memory.peak", "")
	}
	var buf [32]byte
	n, _ := c.memoryPeak.ReadAt(buf[:], 0)
	number, _ := strconv.ParseInt(string(bytes.TrimSpace(buf[:n])), 10, 64)
	return number
}

// mostBeyond is how many bytes of buffers all commands may have beyond their limit.
const mostBeyond = 16 << 20

// BuffersBeyondLimit reports whether buffers of sockets have taken more memory than all
// commands may have. On version 2, from Linux 5.18 on, the kernel charges packets that
// arrive even beyond the limit, and enforces the limit at the next allocation that can
// wait. A program that only sends makes no such allocation.
func (c *Counters) BuffersBeyondLimit() bool {
	if !c.isUnified() {
		return false
	}
	all := c.of(".")
	limit := all.number("memory", "memory.max", "")
	return limit > 0 && all.number("memory", "memory.current", "") > limit+mostBeyond && c.number("memory", "memory.stat", "sock") > mostBeyond
}
