package process

import (
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/confinement"
	"github.com/rockpool/rockpool/agent/cmd/proc"
)

// marks allocates marks for executions. Its methods are safe for concurrent use.
type marks struct {
	mu   sync.Mutex // guards the fields below
	used [proc.Marks]bool
	next int // marks are used in turn, so that each rests for a while before its reuse
}

// take reserves a mark. It returns false if all are used.
func (m *marks) take() (uint32, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for range proc.Marks {
		i := m.next
		m.next = (m.next + 1) % proc.Marks
		if !m.used[i] {
			m.used[i] = true
			return proc.FirstMark + uint32(i), true
		}
	}
	return 0, false
}

// free returns a mark. No process may have it any longer.
func (m *marks) free(mark uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used[mark-proc.FirstMark] = false
}

// canMark reports whether the agent can start commands as the user and with marks: it has the
// capabilities, and its user namespace maps the ids.
func canMark() bool {
	if !confinement.Can(unix.CAP_SETUID) || !confinement.Can(unix.CAP_SETGID) || !confinement.Can(unix.CAP_KILL) {
		return false
	}
	setgroups, err := os.ReadFile("/proc/self/setgroups")
	if err != nil || string(setgroups) != "allow\n" {
		return false
	}
	return proc.Mapped("/proc/self/uid_map", confinement.User) && proc.Mapped("/proc/self/gid_map", confinement.Group) &&
		proc.Mapped("/proc/self/gid_map", proc.FirstMark) && proc.Mapped("/proc/self/gid_map", proc.FirstMark+proc.Marks-1)
}

// ofMachine reports whether users here are the machine's users, which other runners share: the user
// namespace is the initial one, or maps all ids to themselves.
func ofMachine() bool {
	text, _ := os.ReadFile("/proc/self/uid_map")
	fields := strings.Fields(string(text))
	return len(fields) == 3 && fields[0] == fields[1] && fields[2] == "4294967295"
}
