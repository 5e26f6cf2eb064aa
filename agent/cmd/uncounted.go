package main

import (
	"bytes"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// No control group counts some of the kernel's memory, and a program can take much of it
// in a second: locks of parts of files (fcntl(2)), some 190 bytes each, and connections of
// TCP that nobody has accepted, with all that was sent on them. The kernel lists both,
// but at a cost. So they are looked at when a command could have made many since the last
// look: it had much processor time, or some and a second has passed.
const (
	lookTime = 200 * time.Millisecond // of all processors
	someTime = 10 * time.Millisecond
	lookWait = time.Second
)

// mostListed is how many locks, and how many sockets of TCP, are looked at. A runner that
// has more has too many: it would take long to look at them all.
const mostListed = 16 << 10

// What a command may take of each. Databases hold a few locks; a server accepts.
const (
	mostLocks      = 4096
	mostUnaccepted = 16 << 20 // bytes, of the whole runner
	mostBeyond     = 16 << 20 // bytes, of all commands
)

// connectionBytes is what a connection takes beside what was sent on it.
const connectionBytes = 2500

// Excessive is of [serve.Process]. Connections are the whole runner's: each command that
// is looked at ends.
func (p *process) Excessive() bool {
	if p.host.inner != nil {
		return false
	}
	if p.group != nil && p.group.counters.buffersBeyondLimit() {
		return true
	}
	if !p.lookTimePassed() {
		return false
	}
	if p.host.ownNetwork && manyUnaccepted() {
		return true
	}
	return p.host.marking && p.manyLocks()
}

// buffersBeyondLimit reports whether buffers of sockets have taken more memory than all
// commands may have. On version 2, from Linux 5.18 on, the kernel charges packets that
// arrive even beyond the limit, and enforces the limit at the next allocation that can
// wait. A program that only sends makes no such allocation.
func (c *counters) buffersBeyondLimit() bool {
	if !c.unified() {
		return false
	}
	all := c.of(".")
	limit := all.number("memory", "memory.max", "")
	return limit > 0 && all.number("memory", "memory.current", "") > limit+mostBeyond && c.number("memory", "memory.stat", "sock") > mostBeyond
}

// A look is when a command was looked at.
type look struct {
	cpu   time.Duration // that it had had
	after time.Duration // since its start
}

// lookTimePassed reports whether it is time to look again.
func (p *process) lookTimePassed() bool {
	now := look{cpu: someTime + p.lookedAt.cpu, after: time.Since(p.began)} // where nobody counts processor time
	if p.group != nil && p.group.counters.has("cpuacct") {
		now.cpu = p.group.counters.cpu()
	}
	used, waited := now.cpu-p.lookedAt.cpu, now.after-p.lookedAt.after
	if used < someTime || used < lookTime && waited < lookWait {
		return false
	}
	p.lookedAt = now
	return true
}

// manyLocks reports whether p's processes hold too many locks, or all of the runner hold
// more than are looked at. The kernel lists a runner's own only.
func (p *process) manyLocks() bool {
	holders := map[int]int{}
	whole := eachLine("/proc/locks", func(line []byte) {
		if pid := holderOf(line); pid > 0 {
			holders[pid]++
		}
	})
	held := 0
	for pid, n := range holders {
		if s, err := readStatus(pid); err == nil && s.slot == p.gid {
			held += n
		}
	}
	return !whole || held > mostLocks
}

// holderOf returns the process of a line of /proc/locks, such as
// "1: POSIX  ADVISORY  WRITE 12 00:1b:1201 0 0"; 0 for one that only waits.
func holderOf(line []byte) int {
	fields := bytes.Fields(line)
	if len(fields) < 5 || string(fields[1]) == "->" {
		return 0
	}
	pid, _ := strconv.Atoi(string(fields[4]))
	return pid
}

// manyUnaccepted reports whether the connections of this network that nobody has accepted
// take too much memory, or there are more sockets than are looked at.
func manyUnaccepted() bool {
	size := int64(0)
	for _, protocol := range []string{"tcp", "tcp6"} {
		if !eachLine("/proc/self/net/"+protocol, func(line []byte) { size += unacceptedSize(line) }) {
			return true
		}
	}
	return size > mostUnaccepted
}

// unacceptedSize returns what a line of /proc/net/tcp says of a connection that nobody
// has accepted; 0 of others (proc_pid_net(5)):
// "0: 0100007F:1F90 0100007F:8A2C 08 00000000:00000400 00:00000000 00000000 0 0 0 …".
func unacceptedSize(line []byte) int64 {
	const state, queues, inode = 3, 4, 9
	fields := bytes.Fields(line)
	if len(fields) <= inode || string(fields[inode]) != "0" {
		return 0
	}
	if s := string(fields[state]); s == "06" || s == "03" { // TIME_WAIT and SYN_RECV, which are small, and few: [boundUsers]
		return 0
	}
	_, received, _ := bytes.Cut(fields[queues], []byte(":"))
	n, _ := strconv.ParseInt(string(received), 16, 64)
	return connectionBytes + n
}

// eachLine calls each with the first lines of a file of /proc, and reports whether these
// were all. A file that can't be read has none.
func eachLine(path string, each func(line []byte)) (all bool) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer func() { _ = unix.Close(fd) }()
	var buf [4096]byte
	kept := 0 // of a line whose end was not read yet
	for listed := 0; listed < mostListed; {
		n, err := unix.Read(fd, buf[kept:])
		if n <= 0 || err != nil {
			return true
		}
		text := buf[:kept+n]
		end := bytes.LastIndexByte(text, '\n') + 1
		for line := range bytes.Lines(text[:end]) {
			listed++
			each(line)
		}
		kept = copy(buf[:], text[end:])
	}
	return false
}
