package main

import (
	"bytes"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Locks of parts of files (fcntl(2)) are memory of the kernel that no control group
// counts, some 190 bytes each, and a program can make a million in a second. The kernel
// lists them for a whole machine at once, under a lock of its own. So they are counted
// when a command could have made many: it had some processor time since the last count.
const (
	lockTime = 200 * time.Millisecond // of all processors
	lockWait = time.Second            // where nobody counts that
)

// mostListed is how many locks are looked at, at most.
const mostListed = 16 << 10

// Locks is of [serve.Process].
func (p *process) Locks() int {
	if p.host.inner != nil || !p.host.marking || !p.lockTimePassed() {
		return 0
	}
	held := 0
	for pid, n := range lockHolders() {
		if s, err := readStatus(pid); err == nil && s.slot == p.gid {
			held += n
		}
	}
	return held
}

// lockTimePassed reports whether locks are to be counted again.
func (p *process) lockTimePassed() bool {
	now, enough := time.Since(p.began), lockWait
	if p.group != nil && p.group.counters.has("cpuacct") {
		now, enough = p.group.counters.cpu(), lockTime
	}
	if now-p.lockedAt < enough {
		return false
	}
	p.lockedAt = now
	return true
}

// lockHolders returns how many locks processes of this runner hold, as far as they are
// among the first that the kernel lists.
func lockHolders() map[int]int {
	fd, err := unix.Open("/proc/locks", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	holders, listed := map[int]int{}, 0
	var buf [4096]byte
	kept := 0 // of a line whose end was not read yet
	for listed < mostListed {
		n, err := unix.Read(fd, buf[kept:])
		if n <= 0 || err != nil {
			break
		}
		text := buf[:kept+n]
		end := bytes.LastIndexByte(text, '\n') + 1
		for line := range bytes.Lines(text[:end]) {
			listed++
			if pid := holderOf(line); pid > 0 {
				holders[pid]++
			}
		}
		kept = copy(buf[:], text[end:])
	}
	return holders
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
