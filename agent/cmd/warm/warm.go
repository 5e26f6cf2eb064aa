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

// restartPause is how long a zygote that has ended isn't started again.
const restartPause = time.Second

// A Warmer has the zygote of a runner, and children of it that wait to become commands: a fork takes
// longer than all else. Its methods are safe for concurrent use.
type Warmer struct {
	launcher func() (launch.Func, error) // nil: no zygote can be started here

	mu     sync.Mutex // guards what is below; held while a zygote is started or forks
	wanted agent.Warm
	path   string            // the interpreter
	zygote *zygote           // nil: none was asked for
	ended  bool              // it isn't there any more
	until  time.Time         // when it may be started again
	spares map[string]*Spare // by the group that they wait in
}

// New returns a warmer without a zygote. Launcher returns what starts one, with what it gets as
// ambient capabilities; nil: none can be started here.
func New(launcher func() (launch.Func, error)) *Warmer {
	return &Warmer{launcher: launcher, spares: map[string]*Spare{}}
}

// Prepare starts a zygote of the interpreter at path, and returns when it has loaded its modules.
// A second call for the same returns what the first did. An error of a module is an
// [*agent.Error] that names it, and holds the interpreter's own.
func (w *Warmer) Prepare(want agent.Warm, path string) (agent.Warmed, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.launcher == nil {
		return agent.Warmed{}, &agent.Error{Code: agent.ErrDenied, Message: "the agent can't give a zygote a user of its own here"}
	}
	if w.zygote != nil {
		if slices.Equal(w.wanted.Modules, want.Modules) && slices.Equal(w.wanted.Env, want.Env) && w.path == path {
			return w.zygote.warmed(), nil
		}
		return agent.Warmed{}, &agent.Error{Code: agent.ErrInvalid, Message: "the runner has another zygote"}
	}
	w.wanted, w.path = want, path
	if err := w.start(); err != nil {
		return agent.Warmed{}, err
	}
	return w.zygote.warmed(), nil
}

// start starts the zygote. w.mu is held.
func (w *Warmer) start() error {
	f, err := w.launcher()
	if err != nil {
		return fmt.Errorf("start a zygote: %w", err)
	}
	// What the interpreter says when it can't start.
	says, err := unix.MemfdCreate("stderr", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(says) }()
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(null) }()
	ours, theirs, err := newLink()
	if err != nil {
		return err
	}
	const user = confinement.ZygoteUser
	z := &zygote{child: child{link: ours}}
	z.pid, err = f(w.path, []string{w.path, "-c", script}, &syscall.ProcAttr{
		Dir: "/", Env: environment(w.wanted.Env), Files: []uintptr{uintptr(null), uintptr(says), uintptr(says), uintptr(theirs)},
		Sys: &syscall.SysProcAttr{
			Setsid: true, Credential: &syscall.Credential{Uid: user, Gid: user, Groups: []uint32{user}},
			AmbientCaps: []uintptr{unix.CAP_SETUID, unix.CAP_SETGID},
		},
	})
	_ = unix.Close(theirs)
	if err != nil {
		z.close()
		return &agent.Error{Code: agent.ErrDenied, Field: "interpreter", Path: w.path, Message: "could not be executed: " + err.Error()}
	}
	if err := z.load(w.wanted.Modules); err != nil {
		z.end()
		var known *agent.Error
		if !errors.As(err, &known) {
			return &agent.Error{Code: agent.ErrInternal, Field: "interpreter", Path: w.path, Message: "ended while it was loaded: " + lastLine(says)}
		}
		return err
	}
	w.zygote, w.ended = z, false
	return nil
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

// Stock has a child of the zygote wait for the next command in group, and starts a zygote that has
// ended again.
func (w *Warmer) Stock(group *groups.Group) (err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range 2 { // the first fork may find that it has ended
		if w.ended {
			if time.Now().Before(w.until) {
				return err
			}
			w.until = time.Now().Add(restartPause)
			if err := w.start(); err != nil {
				return err
			}
		}
		if w.spares[place(group)] != nil {
			return nil
		}
		s, failed := w.fork(group)
		if failed == nil {
			w.spares[place(group)] = s
			return nil
		}
		if err = failed; !w.ended {
			return err
		}
	}
	return err
}

// Take returns a child that waits in the group, and is the caller's alone.
func (w *Warmer) Take(group *groups.Group) (*Spare, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, err := w.spares[place(group)], error(nil)
	switch {
	case s != nil:
		delete(w.spares, place(group))
	case w.ended:
		return nil, errors.New("it has ended, and is started again")
	default:
		if s, err = w.fork(group); err != nil {
			return nil, err
		}
	}
	switch {
	case place(group) != shared:
		group.Keep(0)
	case group != nil && group.Own():
		err = group.Adopt(s.pid)
	}
	if err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// shared is the place of all children that wait beside the zygote, in the group that commands
// share or without one.
const shared = ""

// place returns where a child waits for a command in group. In version 1 of cgroups that is the
// group itself, for a move takes up to 12 ms. In version 2 the kernel ends a group's processes
// together.
func place(group *groups.Group) string {
	if group == nil || !group.Own() || !group.HasProcesses() {
		return shared
	}
	return group.Name()
}

// fork returns a child that waits in its place. w.mu is held.
func (w *Warmer) fork(group *groups.Group) (*Spare, error) {
	s, err := w.zygote.fork()
	if err == nil && place(group) != shared {
		group.Keep(s.pid)
		if err = group.Adopt(s.pid); err != nil {
			group.Keep(0)
			s.end()
		}
	}
	if errors.Is(err, errZygote) {
		w.zygote.end() // which state it is in is unknown
		w.ended = true
	}
	return s, err
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
