package main

import (
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/serve"
)

// user is whom commands run as, if the agent may choose.
const user = 1000

// A host runs commands on the machine, or in the namespaces, that the agent is
// in.
type host struct {
	*files
	reaper      *reaper
	launcher    *launcher
	fork        forkExec     // starts a command where groups is nil
	groups      *groups      // nil: commands are in the agent's own
	null        int          // /dev/null, for commands without stdin
	marking     bool         // commands run as user, each execution with a group id of its own
	sharing     bool         // the kernel counts other runners' processes as this one's
	connections *connections // of the runner's network; nil: others have the same
	locks       *list        // of files; nil: the machine has no such list
	ownIPC      bool         // what System V has between processes here is this runner's alone
	noRoot      bool         // no command may be root
	inner       *innerCounts // of the runner's own kernel; nil: it has none
	slots       slots
	ready       sync.Once // getReady, before the first command
}

func newHost(workspace string, launcher *launcher) (*host, error) {
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/null: %w", err)
	}
	f, err := newFiles(path.Clean(workspace))
	if err != nil {
		return nil, err
	}
	locks, err := openList("/proc/locks")
	if err != nil {
		return nil, err
	}
	h := &host{files: f, locks: locks, reaper: newReaper(), launcher: launcher, fork: forkPlainly, null: null, marking: canMark()}
	h.sharing = h.marking && ofMachine()
	if !h.marking {
		fmt.Fprintln(os.Stderr, "agent: can't switch users: commands run as the agent's own user, and a process that leaves its session may outlive its execution")
	}
	return h, nil
}

// canMark reports whether the agent may start commands as user and with the
// group ids of slots: if it has the capabilities, and the ids are mapped in its
// user namespace.
func canMark() bool {
	if !can(unix.CAP_SETUID) || !can(unix.CAP_SETGID) || !can(unix.CAP_KILL) {
		return false
	}
	setgroups, err := os.ReadFile("/proc/self/setgroups")
	if err != nil || string(setgroups) != "allow\n" {
		return false
	}
	return mapped("/proc/self/uid_map", user) && mapped("/proc/self/gid_map", user) &&
		mapped("/proc/self/gid_map", firstSlot) && mapped("/proc/self/gid_map", firstSlot+slotCount-1)
}

// ofMachine reports whether the users here are the machine's own, as in other
// runners: in the user namespace that there was first, or one like it.
func ofMachine() bool {
	text, _ := os.ReadFile("/proc/self/uid_map")
	fields := strings.Fields(string(text))
	return len(fields) == 3 && fields[0] == fields[1] && fields[2] == "4294967295"
}

// mapped reports whether an id map has this id.
func mapped(file string, id uint32) bool {
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

// Each execution that runs has a supplementary group id of its own, by which
// its processes are known however they are called, whoever their parent is:
// user code can't drop it. (Grid Engine calls it the additional group id.)
const (
	firstSlot = 60000
	slotCount = 256
)

// slots are the group ids that are in use.
type slots struct {
	mu   sync.Mutex
	used [slotCount]bool
	next int // ids are used in turn, so that one rests before it is used again
}

func (s *slots) take() (uint32, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range slotCount {
		i := s.next
		s.next = (s.next + 1) % slotCount
		if !s.used[i] {
			s.used[i] = true
			return firstSlot + uint32(i), true
		}
	}
	return 0, false
}

// free gives an id back. No process may have it any more.
func (s *slots) free(gid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[gid-firstSlot] = false
}

// Start starts a command. See [serve.Host].
func (h *host) Start(start agent.Start) (serve.Process, error) {
	h.ready.Do(h.getReady)
	dir, err := h.workingDirectory(start.Dir)
	if err != nil {
		return nil, err
	}
	candidates, err := h.lookUp(start.Argv[0], dir, start.Env)
	if err != nil {
		return nil, err
	}
	gid, ok := h.slots.take()
	if !ok {
		return nil, &agent.Error{Code: agent.ErrTooMany, Message: "too many executions run"}
	}
	p, err := h.start(start, dir, candidates, gid)
	if err != nil {
		h.slots.free(gid)
		return nil, err
	}
	return p, nil
}
