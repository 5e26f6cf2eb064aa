package main

import (
	"bytes"
	"os"
	"strconv"
	"sync"
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
	mostLocks  = 4096
	mostBeyond = 16 << 20 // bytes, of all commands
)

// Excessive is of [serve.Process]. Connections are the whole runner's: each command that
// is looked at ends.
func (p *process) Excessive() bool {
	if p.host.inner != nil {
		return false
	}
	if p.group != nil && p.group.counters.buffersBeyondLimit() {
		return true
	}
	now, due := p.lookDue()
	if !due {
		return false
	}
	connections, err := p.host.connections.many()
	locks, lockErr := p.manyLocks()
	if err == nil && lockErr == nil { // else it looks again at once
		p.lookedAt = now
	}
	return connections || locks
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

// lookDue returns what a look now would be, and reports whether it is time for one.
func (p *process) lookDue() (now look, due bool) {
	now = look{cpu: someTime + p.lookedAt.cpu, after: time.Since(p.began)} // where nobody counts processor time
	if p.group != nil && p.group.counters.has("cpuacct") {
		if cpu := p.group.counters.cpu(); cpu > 0 { // else it can't be read
			now.cpu = cpu
		}
	}
	used, waited := now.cpu-p.lookedAt.cpu, now.after-p.lookedAt.after
	return now, used >= lookTime || used >= someTime && waited >= lookWait
}

// manyLocks reports whether p's processes hold too many locks, or all of the runner hold
// more than are looked at. The kernel lists a runner's own only. Where commands aren't
// marked, it can't be known whose each is: all are p's, in a runner that has processes of its own.
func (p *process) manyLocks() (bool, error) {
	if !p.host.marking && os.Getpid() != 1 {
		return false, nil
	}
	holders := map[int]int{}
	whole, err := p.host.locks.each(func(line []byte) {
		if pid := holderOf(line); pid > 0 {
			holders[pid]++
		}
	})
	if err != nil {
		return false, err
	}
	held := 0
	for pid, n := range holders {
		if !p.host.marking {
			held += n
			continue
		}
		switch s, failed := readStatus(pid); {
		case failed == nil && s.slot == p.gid:
			held += n
		case failed == unix.EMFILE || failed == unix.ENFILE: // others have ended
			err = failed
		}
	}
	return !whole || held > mostLocks, err
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

// eachLine calls each with the first lines of a file of /proc, as a [list] does.
func eachLine(path string, each func(line []byte)) (all bool, err error) {
	l, err := openList(path)
	if err != nil || l == nil {
		return true, err
	}
	defer func() { _ = unix.Close(l.fd) }()
	return l.each(each)
}

// A list is a file of /proc that is read again and again. It stays open: what takes the
// machine's last open file doesn't keep the agent from reading.
type list struct {
	mu sync.Mutex // one reading at a time: the kernel goes on where the last one ended
	fd int
}

// openList returns a list, nil where the machine doesn't have it.
func openList(path string) (*list, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	switch err {
	case nil:
		return &list{fd: fd}, nil
	case unix.ENOENT, unix.EACCES, unix.EPERM:
		return nil, nil
	default:
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
}

// each calls each with the first lines, and reports whether these were all.
func (l *list) each(each func(line []byte)) (all bool, err error) {
	if l == nil {
		return true, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var buf [4096]byte
	kept := 0 // of a line whose end was not read yet
	at := int64(0)
	for listed := 0; listed < mostListed; {
		n, err := unix.Pread(l.fd, buf[kept:], at)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			return true, err
		}
		at += int64(n)
		text := buf[:kept+n]
		end := bytes.LastIndexByte(text, '\n') + 1
		for line := range bytes.Lines(text[:end]) {
			listed++
			each(line)
		}
		kept = copy(buf[:], text[end:])
	}
	return false, nil
}
