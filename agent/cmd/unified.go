package main

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// nowUnified is now where cgroups are of version 2.
func (c *counters) nowUnified() (n counts) {
	n.refused = c.number("pids", "pids.events", "max")
	n.refusedTogether = c.of(".").number("pids", "pids.events.local", "max")
	n.mostProcesses = c.number("pids", "pids.peak", "")
	n.oomKills = c.number("memory", "memory.events", "oom_kill")
	n.memory = c.number("memory", "memory.current", "")
	n.mostMemory = c.readPeak()
	n.cpu, n.user, n.system = c.processorTime()
	n.read, n.written = c.bytes()
	return n
}

// tellTogether notes whether forks were refused because of all commands together:
// from Linux 6.11 on the kernel doesn't say to whom. It is the command's if no
// group has more processes. One that ended before this was looked at isn't named.
func (c *counters) tellTogether() {
	refused := c.of(".").number("pids", "pids.events.local", "max") - c.start.refusedTogether
	if refused <= 0 {
		return
	}
	own := c.number("pids", "pids.current", "")
	for _, name := range []string{groupName(0), groupName(1), restGroups} {
		if c.of(name).number("pids", "pids.current", "") > own {
			return
		}
	}
	c.together = refused
}

// of returns the counters of another group.
func (c *counters) of(name string) *counters { return &counters{trees: c.trees, name: name} }

// processorTime returns it in nanoseconds: all, the user's, and the system's.
func (c *counters) processorTime() (all, user, system int64) {
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
func (c *counters) bytes() (read, written int64) {
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

// forgetPeak has the peak of memory count from now on, where the kernel can do
// that (from Linux 6.12 on).
func (c *counters) forgetPeak() {
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

func (c *counters) readPeak() int64 {
	if c.memoryPeak == nil {
		return c.number("memory", "memory.peak", "")
	}
	var buf [32]byte
	n, _ := c.memoryPeak.ReadAt(buf[:], 0)
	number, _ := strconv.ParseInt(string(bytes.TrimSpace(buf[:n])), 10, 64)
	return number
}
