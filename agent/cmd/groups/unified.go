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

// openUnified opens a group of version 2 below the directory run. Commands of users start on t.
// Commands of root start on a thread with a bounding set that isn't empty.
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

func (c *Counters) nowUnified() (n counts) {
	n.refused = c.number("pids", "pids.events", "max")
	if !c.ofRunner {
		n.refusedTogether = c.together.of(c)
	}
	n.mostProcesses = c.number("pids", "pids.peak", "")
	n.oomKills = c.number("memory", "memory.events", "oom_kill")
	n.memory = c.memoryNow()
	n.mostMemory = c.readPeak()
	if !c.ofRunner { // the whole runner's group includes the agent
		n.cpu, n.user, n.system = c.processorTime()
	}
	n.read, n.written = c.bytes()
	return n
}

// refusals attributes the forks that the limit of all commands together refused. Since Linux 6.11
// the kernel counts them at the limit, without the group that forked. Each is charged to one group
// or to none. Its methods are safe for concurrent use.
type refusals struct {
	mu   sync.Mutex       // guards the fields below
	seen int64            // the kernel's count at the last read
	by   map[string]int64 // refused forks by group
}

// of returns the refused forks that are charged to c's group. The forks that were refused since the
// last call, for any group, are charged to the largest group (see [Counters.largest]), or to none.
// The lock covers the reads, so that the sizes of the groups belong to the count that was read with
// them.
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

// largest returns the group with the most processes, if all groups together are at their limit, or
// if that group has more than half of it. Otherwise it returns "".
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

// of returns the counters of another group of the runner.
func (c *Counters) of(name string) *Counters {
	return &Counters{trees: c.trees, name: name, kept: c.kept}
}

// processorTime returns the processor time in nanoseconds: total, user, and system.
func (c *Counters) processorTime() (all, user, system int64) {
	var buf [1024]byte
	text := c.text(buf[:], "cpuacct", "cpu.stat")
	return 1000 * sum(text, "usage_usec"), 1000 * sum(text, "user_usec"), 1000 * sum(text, "system_usec")
}

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

// forgetPeak resets the peak of memory, if the kernel can (since Linux 6.12).
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

// readPeak returns the peak of memory since the last reset, or since the group was made if the
// kernel can't reset it.
func (c *Counters) readPeak() int64 {
	if c.memoryPeak == nil {
		return c.number("memory", "memory.peak", "")
	}
	var buf [32]byte
	n, _ := c.memoryPeak.ReadAt(buf[:], 0)
	return sum(buf[:n], "")
}

// mostBeyond is how many bytes of socket buffers all commands may have beyond their limit.
const mostBeyond = 16 << 20

// BuffersBeyondLimit reports whether socket buffers take more memory than all commands may have. In
// version 2, since Linux 5.18, the kernel charges arriving packets even beyond the limit. It
// enforces the limit at the next allocation that can wait. A program that only sends never makes
// such an allocation.
func (c *Counters) BuffersBeyondLimit() bool {
	if !c.isUnified() {
		return false
	}
	all := c.of(".")
	limit := all.number("memory", "memory.max", "")
	return limit > 0 && all.number("memory", "memory.current", "") > limit+mostBeyond && c.number("memory", "memory.stat", "sock") > mostBeyond
}
