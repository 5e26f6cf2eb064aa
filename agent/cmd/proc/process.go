// Package proc reads what /proc says about processes, and keeps open the files of it that are
// read again and again. It reads with system calls and small buffers, since an idle agent
// keeps each size that it ever allocated. It never lists the agent itself.
package proc

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Each execution that runs has a mark: a supplementary group id of its own. User code can't
// drop it, so it identifies the execution's processes whatever their name or parent is.
// (Grid Engine calls it the additional group id.)
const (
	FirstMark = 60000
	Marks     = 256
)

// Status is what /proc/PID/status says and a process can't forge.
type Status struct {
	Dead    bool // a zombie none of whose threads runs
	Parent  int  // 0: outside of the PID namespace
	Threads int
	Session int    // in the agent's PID namespace
	Mark    uint32 // of its execution; 0: none
}

// ReadStatus reads /proc/PID/status.
func ReadStatus(pid int) (Status, error) {
	var buf [4096]byte
	text, err := read("/proc/"+strconv.Itoa(pid)+"/status", buf[:])
	if err != nil {
		return Status{}, err
	}
	return parseStatus(text), nil
}

// read reads the beginning of a file into buf.
func read(path string, buf []byte) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	n, err := unix.Read(fd, buf)
	if err != nil {
		return nil, err
	}
	return buf[:n], nil
}

// parseStatus parses /proc/PID/status. The process's name, which the process may choose,
// comes first, with newlines escaped.
func parseStatus(text []byte) (s Status) {
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
			s.Parent, _ = strconv.Atoi(string(value))
		case "Groups":
			for field := range bytes.FieldsSeq(value) {
				if gid, err := strconv.Atoi(string(field)); err == nil && gid >= FirstMark && gid < FirstMark+Marks {
					s.Mark = uint32(gid)
				}
			}
		case "NSsid":
			s.Session = firstOf(value)
		case "Threads":
			s.Threads, _ = strconv.Atoi(string(value))
		}
	}
	// A process whose first thread has ended looks like a zombie while others run.
	s.Dead = (state == 'Z' || state == 'X') && s.Threads <= 1
	return s
}

// firstOf returns the first of the numbers that an id has, one for each PID
// namespace from the agent's own inwards.
func firstOf(value []byte) int {
	first, _, _ := bytes.Cut(value, []byte("\t"))
	n, _ := strconv.Atoi(string(first))
	return n
}

// PIDs returns every process but the agent, and whether that could be read to its end.
func PIDs() (found []int, all bool) {
	fd, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, false
	}
	defer func() { _ = unix.Close(fd) }()
	self := unix.Getpid()
	buf := make([]byte, 8<<10)
	var names []string
	for {
		n, err := unix.Getdents(fd, buf)
		if err != nil || n <= 0 {
			return found, err == nil
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names[:0])
		for _, name := range names {
			if pid, err := strconv.Atoi(name); err == nil && pid != self {
				found = append(found, pid)
			}
		}
	}
}

// tick is the unit of processor times in /proc: USER_HZ, 100 on every Linux.
const tick = 10 * time.Millisecond

// Stat is what /proc/PID/stat says.
type Stat struct {
	User, System time.Duration // including that of the children that it waited for
	Threads      int           // 0 for a dead process
	Memory       int64         // bytes that are resident
}

// ReadStat reads /proc/PID/stat. It is zero if it can't be read.
func ReadStat(pid int) Stat {
	var buf [1024]byte
	text, err := read("/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	if err != nil {
		return Stat{}
	}
	return parseStat(text)
}

// parseStat parses /proc/PID/stat. The name, which may hold anything, ends with the last
// parenthesis.
func parseStat(text []byte) (s Stat) {
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 22 {
		return Stat{}
	}
	number := func(field int) int64 {
		n, _ := strconv.ParseInt(string(fields[field]), 10, 64)
		return n
	}
	s.User = time.Duration(number(11)+number(13)) * tick   // utime, cutime
	s.System = time.Duration(number(12)+number(14)) * tick // stime, cstime
	if state := fields[0][0]; state != 'Z' && state != 'X' {
		s.Threads, s.Memory = int(number(17)), number(21)*int64(os.Getpagesize())
	}
	return s
}

// Executed reports whether a process has executed a program since its fork. It is true of one that
// can't be read.
func Executed(pid int) bool {
	const forkedOnly = 0x40 // PF_FORKNOEXEC
	var buf [1024]byte
	text, err := read("/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	if err != nil {
		return true
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 7 {
		return true
	}
	flags, _ := strconv.ParseUint(string(fields[6]), 10, 64)
	return flags&forkedOnly == 0
}

// Mapped reports whether a user namespace's map of ids, such as /proc/self/uid_map, has an id.
func Mapped(file string, id uint32) bool {
	text, _ := os.ReadFile(file)
	// Not with fmt, whose scanning alone costs an idle agent 20 KiB.
	for line := range strings.Lines(string(text)) {
		var n [3]uint64 // first id inside, outside, how many
		field := 0
		for word := range strings.FieldsSeq(line) {
			if field < len(n) {
				n[field], _ = strconv.ParseUint(word, 10, 32)
			}
			field++
		}
		if inside, count := n[0], n[2]; field == len(n) && uint64(id) >= inside && uint64(id)-inside < count {
			return true
		}
	}
	return false
}
