package main

import (
	"bytes"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/serve"
)

// tick is the unit of processor times in /proc: USER_HZ, 100 on every Linux.
const tick = 10 * time.Millisecond

// Measure is of [serve.Process]. Processor time is that of the living and of
// those that were waited for. What nobody waits for, since its parent ignores
// SIGCHLD, is missing once it has ended.
func (p *process) Measure() (m serve.Measure) {
	count := func(pid int) {
		cpu, threads := readStat(pid)
		m.CPU += cpu
		m.Processes += threads
	}
	if p.host.marking {
		for _, pid := range pids() { // the dead that nobody has waited for count too
			if s, err := readStatus(pid); err == nil && s.slot == p.gid {
				count(pid)
			}
		}
	} else {
		for _, pid := range p.members() {
			count(pid)
		}
	}
	p.host.reaper.mu.Lock()
	defer p.host.reaper.mu.Unlock()
	m.CPU += p.usage.User + p.usage.System
	if p.alone() && p.group.counters.has("cpuacct") {
		m.CPU = max(m.CPU, p.group.counters.cpu()) // misses nobody
	}
	return m
}

// Refused is of [serve.Process].
func (p *process) Refused() int64 {
	switch {
	case p.alone():
		return p.group.counters.refused()
	case p.ownKernel():
		return p.refusedInside()
	default:
		return 0
	}
}

// readStat reads a process's processor time, its children's that it waited for
// included, and its number of threads, 0 for a dead one.
func readStat(pid int) (cpu time.Duration, threads int) {
	fd, err := unix.Open("/proc/"+itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0
	}
	defer func() { _ = unix.Close(fd) }()
	var buf [1024]byte
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return 0, 0
	}
	return parseStat(buf[:n])
}

// parseStat takes the text of /proc/PID/stat apart. The name, which may hold
// anything, ends with the last parenthesis.
func parseStat(text []byte) (cpu time.Duration, threads int) {
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 18 {
		return 0, 0
	}
	for _, field := range fields[11:15] { // utime, stime, cutime, cstime
		ticks, _ := strconv.ParseInt(string(field), 10, 64)
		cpu += time.Duration(ticks) * tick
	}
	if state := fields[0][0]; state != 'Z' && state != 'X' {
		threads, _ = strconv.Atoi(string(fields[17]))
	}
	return cpu, threads
}
