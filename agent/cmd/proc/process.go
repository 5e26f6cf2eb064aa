// Package proc reads information about processes from /proc, and starts threads. It guarantees that
// the agent itself is never listed. It also allocates little, by system calls and small buffers,
// since an idle agent keeps memory of each size that it ever allocated.
package proc

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A mark is a supplementary group id that only one running execution has. User code can't drop it.
// So it identifies the execution's processes, whatever their name or parent. (Grid Engine calls it
// the additional group id.)
const (
	FirstMark = 60000
	Marks     = 256
)

// Status has the fields of /proc/PID/status that a process can't forge.
type Status struct {
	Dead    bool // a zombie without running threads
	Parent  int  // 0 if it is outside of the PID namespace
	Threads int
	Session int    // in the agent's PID namespace
	Mark    uint32 // its execution's, 0 if there is none
}

// ReadStatus reads /proc/PID/status.
func ReadStatus(pid int) (Status, error) {
	var buf [4096]byte
	text, err := Read(pid, "status", buf[:])
	if err != nil {
		return Status{}, err
	}
	return parseStatus(text), nil
}

// Read reads the beginning of a file of /proc/PID into buf, and returns that part of it.
func Read(pid int, file string, buf []byte) ([]byte, error) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/"+file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
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

// parseStatus parses /proc/PID/status. The name comes first. The process chooses it, but newlines
// in it are escaped.
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
			// The first of its ids, of which it has one for each PID namespace from the agent's own inwards.
			first, _, _ := bytes.Cut(value, []byte("\t"))
			s.Session, _ = strconv.Atoi(string(first))
		case "Threads":
			s.Threads, _ = strconv.Atoi(string(value))
		}
	}
	// A process whose first thread has ended is a zombie, although other threads may run.
	s.Dead = (state == 'Z' || state == 'X') && s.Threads <= 1
	return s
}

// PIDs returns the ids of all processes except the agent. All reports whether /proc could be read
// completely.
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

// Stat has fields of /proc/PID/stat.
type Stat struct {
	User, System time.Duration // including the children that it waited for
	Threads      int           // 0 if the process has ended
	Memory       int64         // resident bytes
}

// ReadStat reads /proc/PID/stat. It returns zeros if it can't.
func ReadStat(pid int) Stat {
	var buf [1024]byte
	return parseStat(statFields(pid, buf[:]))
}

// statFields returns the fields of /proc/PID/stat after the process's name, none if it can't be read.
// The name can contain anything; it ends at the last parenthesis. The fields are in buf.
func statFields(pid int, buf []byte) [][]byte {
	text, _ := Read(pid, "stat", buf)
	return bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
}

func parseStat(fields [][]byte) (s Stat) {
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

// Executed reports whether a process has executed a program since its fork. It also returns true if
// that can't be read.
func Executed(pid int) bool {
	const forkedOnly = 0x40 // PF_FORKNOEXEC
	var buf [1024]byte
	fields := statFields(pid, buf[:])
	if len(fields) < 7 {
		return true
	}
	flags, _ := strconv.ParseUint(string(fields[6]), 10, 64)
	return flags&forkedOnly == 0
}

// Mapped reports whether a user namespace's map of ids, such as /proc/self/uid_map, contains id.
func Mapped(file string, id uint32) bool {
	text, _ := os.ReadFile(file)
	// Not with package fmt, whose scanner costs an idle agent 20 KiB.
	for line := range strings.Lines(string(text)) {
		var n [3]uint64 // the first id inside, the first id outside, their number
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
