// Package warm starts commands of an interpreter from a process that has loaded it before, with
// modules: the zygote. It forks for each command, and runs none itself. It guarantees that a
// command has what one that was executed has, its user, mark, groups, limits, capabilities and
// filter, before its first instruction, and that commands can't reach the zygote. What the
// zygote can't do as a new interpreter would is left to be started cold.
package warm

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/cmd/confinement"
	"github.com/rockpool/rockpool/agent/cmd/groups"
	"github.com/rockpool/rockpool/agent/cmd/launch"
)

// script is the zygote's.
//
//go:embed zygote.py
var script string

// loadsWithin is how long a zygote may take to load its modules.
const loadsWithin = 5 * time.Minute

// takesWithin is how long a start waits for a child of the zygote before it is a cold one.
const takesWithin = time.Second

// A Warmer has the zygote of a runner, and children of it that wait to become commands: a fork takes
// longer than all else. A zygote that has ended isn't replaced: commands start cold from then on.
// Its methods are safe for concurrent use.
type Warmer struct {
	launcher func() (launch.Func, error) // nil: no zygote can be started here
	unreaped func(do func())             // calls do; no child of the agent is reaped before do returns

	loading sync.Mutex             // held while a zygote loads
	zygote  atomic.Pointer[zygote] // nil: none was loaded

	mu     sync.Mutex        // guards spares; held while one is moved, which takes up to 12 ms
	spares map[string]*Spare // by the group that they wait in
}

// New returns a warmer without a zygote. Launcher returns what starts one, with what it gets as
// ambient capabilities; nil: none can be started here. Unreaped calls a function, and has no child
// of the agent be reaped before that returns.
func New(launcher func() (launch.Func, error), unreaped func(do func())) *Warmer {
	return &Warmer{launcher: launcher, unreaped: unreaped, spares: map[string]*Spare{}}
}

// Prepare starts a zygote of the interpreter at path, and returns when it has loaded its modules.
// A second call for the same returns what the first did. An error of a module is an
// [*agent.Error] that names it, and holds the interpreter's own.
func (w *Warmer) Prepare(want agent.Warm, path string) (agent.Warmed, error) {
	w.loading.Lock()
	defer w.loading.Unlock()
	if w.launcher == nil {
		return agent.Warmed{}, &agent.Error{Code: agent.ErrDenied, Message: "the agent can't give a zygote a user of its own here"}
	}
	z := w.zygote.Load()
	if z == nil {
		var err error
		if z, err = w.start(want, path); err != nil {
			return agent.Warmed{}, err
		}
		w.zygote.Store(z)
	}
	if !slices.Equal(z.wanted.Modules, want.Modules) || !slices.Equal(z.wanted.Env, want.Env) || z.path != path {
		return agent.Warmed{}, &agent.Error{Code: agent.ErrInvalid, Message: "the runner has another zygote"}
	}
	return agent.Warmed{Version: z.version, Memory: z.memory}, nil
}

// start starts a zygote, and returns it when it has loaded its modules.
func (w *Warmer) start(want agent.Warm, path string) (*zygote, error) {
	f, err := w.launcher()
	if err != nil {
		return nil, fmt.Errorf("start a zygote: %w", err)
	}
	// What the interpreter says when it can't start.
	says, err := unix.MemfdCreate("stderr", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(says) }()
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(null) }()
	ours, theirs, err := newLink()
	if err != nil {
		return nil, err
	}
	const user = confinement.ZygoteUser
	_, err = f(path, []string{path, "-c", script}, &syscall.ProcAttr{
		Dir: "/", Env: environment(want.Env), Files: []uintptr{uintptr(null), uintptr(says), uintptr(says), uintptr(theirs)},
		Sys: &syscall.SysProcAttr{
			Setsid: true, Credential: &syscall.Credential{Uid: user, Gid: user, Groups: []uint32{user}},
			AmbientCaps: []uintptr{unix.CAP_SETUID, unix.CAP_SETGID},
		},
	})
	_ = unix.Close(theirs)
	if err != nil {
		ours.close()
		return nil, &agent.Error{Code: agent.ErrDenied, Field: "interpreter", Path: path, Message: "could not be executed: " + err.Error()}
	}
	z := &zygote{link: ours, wanted: want, path: path, turn: make(chan struct{}, 1)}
	if err := z.load(); err != nil {
		z.close() // which it ends by
		var known *agent.Error
		if !errors.As(err, &known) {
			return nil, &agent.Error{Code: agent.ErrInternal, Field: "interpreter", Path: path, Message: "ended while it was loaded: " + lastLine(says)}
		}
		return nil, err
	}
	return z, nil
}

// lastLine returns the last line of what an interpreter said.
func lastLine(fd int) string {
	buf := make([]byte, 4<<10)
	n, _ := unix.Pread(fd, buf, 0)
	lines := strings.Split(strings.TrimSpace(string(buf[:max(n, 0)])), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return strings.ToValidUTF8(last, "�")
	}
	return "it said nothing"
}

// Stock has a child of the zygote wait for the next command in group, unless one does.
func (w *Warmer) Stock(group *groups.Group) {
	z := w.zygote.Load()
	w.mu.Lock()
	waits := w.spares[place(group)] != nil
	w.mu.Unlock()
	if z == nil || waits {
		return
	}
	s, err := z.fork(forksWithin)
	if err != nil {
		return // the next start says why it is cold
	}
	w.unreaped(func() { err = w.keep(s, group) })
	if err != nil {
		s.close()
	}
}

// keep has a child wait for a command in group.
func (w *Warmer) keep(s *Spare, group *groups.Group) error {
	at := place(group)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.spares[at] != nil {
		return errors.New("another waits")
	}
	if at != shared {
		if err := s.known(); err != nil {
			return err
		}
		group.Keep(s.pid)
		if err := group.Adopt(s.pid); err != nil {
			group.Keep(0)
			return err
		}
		s.moved = true
	}
	w.spares[at] = s
	return nil
}

// Take returns a child that waits, in the group where it can. It is the caller's alone.
func (w *Warmer) Take(group *groups.Group) (*Spare, error) {
	if s := w.waiting(group); s != nil {
		return s, nil
	}
	return w.zygote.Load().fork(takesWithin)
}

// waiting returns the child that waits for a command in group; nil: none does.
func (w *Warmer) waiting(group *groups.Group) *Spare {
	at := place(group)
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.spares[at]
	delete(w.spares, at)
	if at != shared {
		group.Keep(0)
	}
	return s
}

// shared is the place of all children that wait beside the zygote, in the group that commands
// share or without one.
const shared = ""

// place returns where a child waits for a command in group. In version 1 of cgroups that is the
// group itself, for a move takes up to 12 ms. In version 2 the kernel ends a group's processes
// together.
func place(group *groups.Group) string {
	if group == nil || !group.Own() || !group.CanHold() {
		return shared
	}
	return group.Name()
}

// environment is that of a zygote: what is read when an interpreter and its modules are loaded.
// Modules must not start threads, which no fork has.
func environment(of []string) (env []string) {
	for _, v := range of {
		name, _, _ := strings.Cut(v, "=")
		if name == "HOME" || threads(name) {
			continue
		}
		env = append(env, v)
	}
	env = append(env, "HOME=/nonexistent")
	for _, name := range threadVariables {
		env = append(env, name+"=1")
	}
	return env
}

// Interpreter returns the first file of names that a lookup finds.
func Interpreter(lookUp func(name string) ([]string, error)) (string, error) {
	for _, name := range []string{"python3", "python"} {
		if found, err := lookUp(name); err == nil && len(found) > 0 {
			return found[0], nil
		}
	}
	return "", &agent.Error{Code: agent.ErrNotFound, Field: "interpreter", Path: "python3", Message: "isn't in PATH of the runner"}
}

// sameFile reports whether two paths are one file, in one directory.
func sameFile(a, b string) bool {
	if a == b {
		return true
	}
	dirA, errA := filepath.EvalSymlinks(filepath.Dir(a))
	dirB, errB := filepath.EvalSymlinks(filepath.Dir(b))
	if errA != nil || errB != nil || dirA != dirB {
		return false
	}
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}
