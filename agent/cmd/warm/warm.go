// Package warm starts commands of an interpreter from a process that has loaded it before, with
// modules: the zygote. It forks for each command, and runs none itself. It guarantees that a
// command has the user, mark, groups, capabilities and filter of one that was executed before its
// first instruction, and that commands can't reach the zygote. What the zygote can't do as a new
// interpreter would is left to be started cold.
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
const loadsWithin = 2 * time.Minute

// takesWithin is how long a start waits for a child of the zygote before it is a cold one.
const takesWithin = 3 * time.Second

// A Warmer has the zygote of a runner, and children of it that wait to become commands: a fork takes
// longer than all else. A zygote that has ended isn't replaced: commands start cold from then on.
// Its methods are safe for concurrent use.
type Warmer struct {
	launcher func() (launch.Func, error) // nil: no zygote can be started here
	unreaped func(do func())             // calls do; no child of the agent is reaped before do returns

	loading sync.Mutex             // held while a zygote loads
	zygote  atomic.Pointer[zygote] // nil: none was loaded

	stocking sync.Mutex // held while a child is forked that is to wait, and moved

	mu     sync.Mutex        // guards spares
	spares map[string]*Spare // by the group that they wait in
}

// New returns a warmer without a zygote. Launcher returns what starts one, with what it gets as
// ambient capabilities; nil: none can be started here. Unreaped calls a function. No child of the
// agent is reaped before that returns.
func New(launcher func() (launch.Func, error), unreaped func(do func())) *Warmer {
	return &Warmer{launcher: launcher, unreaped: unreaped, spares: map[string]*Spare{}}
}

// Prepare starts a zygote of the interpreter at path, and returns when it has loaded its modules.
// A second call for the same returns what the first did. An error of a module is an
// [*agent.Error] that names it, and holds the interpreter's own. The caller guarantees that no
// command has run before: the zygote loads files with capabilities.
func (w *Warmer) Prepare(want agent.Warm, path string) (agent.Warmed, error) {
	w.loading.Lock()
	defer w.loading.Unlock()
	for _, v := range want.Env {
		if name, _, _ := strings.Cut(v, "="); searched(name) {
			return agent.Warmed{}, &agent.Error{Code: agent.ErrInvalid, Field: "interpreter", Path: path, Message: "each command would start cold, for the environment has the variable " + name}
		}
	}
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
	pid, err := f(path, []string{path, "-c", script}, &syscall.ProcAttr{
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
	z := &zygote{link: ours, unreaped: w.unreaped, wanted: want, path: path, turn: make(chan struct{}, 1)}
	if err := z.load(); err != nil {
		z.close() // it ends, unless it loads for ever
		w.unreaped(func() {
			if known(pid) == nil {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		})
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
func (w *Warmer) Stock(group *groups.Group) error {
	z, at := w.zygote.Load(), place(group)
	w.stocking.Lock()
	defer w.stocking.Unlock()
	if z == nil || w.waits(at) {
		return nil
	}
	s, err := z.fork(forksWithin)
	if err != nil {
		return err
	}
	if at != shared {
		group.Keep(s.pid) // first: it counts for no command
		if err := s.enter(group); err != nil {
			s.End()
			group.Keep(0)
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spares[at] = s
	return nil
}

func (w *Warmer) waits(at string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.spares[at] != nil
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
	if s != nil && at != shared {
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
		if name == "HOME" || slices.Contains(threadVariables, name) {
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
