package groups

import (
	"bytes"
	"strconv"

	"github.com/rockpool/rockpool/agent/cmd/proc"
)

// mostLocks is the maximum number of locks of an execution. Databases hold a few.
const mostLocks = 4096

// Locks are the locks of file ranges (fcntl(2)), which take about 190 bytes each. The kernel lists
// only those of the PID namespace. Its methods are safe for concurrent use.
type Locks struct{ list *proc.File }

// OpenLocks returns the locks of the agent's PID namespace. It keeps the list open.
func OpenLocks() (*Locks, error) {
	list, err := proc.Open("/proc/locks")
	return &Locks{list}, err
}

// Excessive reports whether the processes of one execution hold too many locks, or the kernel lists
// more locks than are read. Holds reports whether a process belongs to the execution.
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

// holderOf returns the process in a line of /proc/locks, such as "1: POSIX  ADVISORY  WRITE 12
// 00:1b:1201 0 0". It returns 0 for a lock that is only waited for.
func holderOf(line []byte) int {
	fields := bytes.Fields(line)
	if len(fields) < 5 || string(fields[1]) == "->" {
		return 0
	}
	pid, _ := strconv.Atoi(string(fields[4]))
	return pid
}
