package main

import (
	"bytes"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

func itoa(n int) string { return strconv.Itoa(n) }

// A status is what /proc tells about a process and the kernel vouches for.
type status struct {
	dead    bool // a zombie none of whose threads runs
	parent  int  // 0: outside of the PID namespace
	threads int
	session int    // in the agent's PID namespace
	slot    uint32 // the group id of its execution; 0: none
}

// readStatus reads /proc/PID/status.
func readStatus(pid int) (status, error) {
	fd, err := unix.Open("/proc/"+itoa(pid)+"/status", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return status{}, err
	}
	defer func() { _ = unix.Close(fd) }()
	var buf [4096]byte
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return status{}, err
	}
	return parseStatus(buf[:n]), nil
}

// parseStatus takes the text of /proc/PID/status apart. The process's name,
// which it may choose, comes first, with newlines escaped.
func parseStatus(text []byte) (s status) {
	state := byte(0)
	for line := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(":"))
		value = bytes.TrimSpace(value)
		switch string(name) {
		case "State":
			if len(value) > 0 {
				state = value[0]
			}
		case "PPid":
			s.parent, _ = strconv.Atoi(string(value))
		case "Groups":
			for field := range bytes.FieldsSeq(value) {
				if gid, err := strconv.Atoi(string(field)); err == nil && gid >= firstSlot && gid < firstSlot+slotCount {
					s.slot = uint32(gid)
				}
			}
		case "NSsid":
			s.session = firstOf(value)
		case "Threads":
			s.threads, _ = strconv.Atoi(string(value))
		}
	}
	// A process whose first thread has ended looks like a zombie while others run.
	s.dead = (state == 'Z' || state == 'X') && s.threads <= 1
	return s
}

// firstOf returns the first of the numbers that an id has, one for each PID
// namespace from the agent's own inwards.
func firstOf(value []byte) int {
	first, _, _ := bytes.Cut(value, []byte("\t"))
	n, _ := strconv.Atoi(string(first))
	return n
}

// members returns the processes of p's execution that aren't dead.
func (p *process) members() []int {
	if _, err := peek(); err == unix.ECHILD {
		return nil // the agent, who inherits every orphan, has no child: nothing is left
	}
	if p.alone() {
		return p.group.members()
	}
	all := map[int]status{}
	for _, pid := range pids() {
		if s, err := readStatus(pid); err == nil && !s.dead {
			all[pid] = s
		}
	}
	var found []int
	if p.host.marking {
		for pid, s := range all {
			if s.slot == p.gid {
				found = append(found, pid)
			}
		}
		return found
	}
	only := p.host.reaper.alone(p)
	for pid := range all {
		if p.owns(pid, all, only) {
			found = append(found, pid)
		}
	}
	return found
}

// members returns the processes of a group that aren't dead. In version 1 the
// agent is listed too, for its thread.
func (g *group) members() (found []int) {
	fd, err := openIn(g.counters.tree("pids"), g.name+"/cgroup.procs", unix.O_RDONLY)
	if err != nil {
		return nil
	}
	file := os.NewFile(uintptr(fd), "cgroup.procs")
	defer func() { _ = file.Close() }()
	text, _ := io.ReadAll(file)
	self := unix.Getpid()
	for field := range bytes.FieldsSeq(text) {
		pid, err := strconv.Atoi(string(field))
		if err != nil || pid == self {
			continue
		}
		if s, err := readStatus(pid); err == nil && !s.dead {
			found = append(found, pid)
		}
	}
	return found
}

// owns reports, where processes aren't marked, whether one belongs to p: by its
// session or that of an ancestor, or because it descends from the agent and p
// is the only one that runs.
func (p *process) owns(pid int, all map[int]status, only bool) bool {
	self := unix.Getpid()
	for range 1 << 10 { // what was read at different times may have circles
		s, ok := all[pid]
		if !ok || pid == self {
			return false
		}
		if s.session == p.pid || only && s.parent == self {
			return true
		}
		pid = s.parent
	}
	return false
}

// pids returns every process but the agent.
func pids() []int {
	fd, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	var found []int
	self := unix.Getpid()
	buf := make([]byte, 8<<10)
	var names []string
	for {
		n, err := unix.Getdents(fd, buf)
		if err != nil || n <= 0 {
			return found
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names[:0])
		for _, name := range names {
			if pid, err := strconv.Atoi(name); err == nil && pid != self {
				found = append(found, pid)
			}
		}
	}
}
