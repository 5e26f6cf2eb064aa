package kernelmemory

import (
	"bytes"
	"strconv"

	"github.com/rockpool/rockpool/agent/cmd/proc"
)

// mostLocks is how many locks a command may hold. Databases hold a few.
const mostLocks = 4096

// Locks are the locks of parts of files (fcntl(2)), some 190 bytes each. The kernel lists a PID
// namespace's own only. Its methods are safe for concurrent use.
type Locks struct{ list *proc.File }

// OpenLocks returns the locks of the agent's PID namespace. The list stays open.
func OpenLocks() (*Locks, error) {
	list, err := proc.Open("/proc/locks")
	return &Locks{list}, err
}

// Excessive reports whether the processes of one execution hold too many locks, or there are more
// locks than are read. The function holds reports whether a process is
// one of these.
func (l *Locks) Excessive(holds func(pid int) (bool, error)) (bool, error) {
	holders := map[int]int{}
	whole, err := l.list.EachLine(func(line []byte) {
		if pid := holderOf(line); pid > 0 {
			holders[pid]++
		}
	})
	if err != nil {
		return false, err
	}
	held := 0
	for pid, n := range holders {
		switch its, failed := holds(pid); {
		case failed != nil:
			err = failed
		case its:
			held += n
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
