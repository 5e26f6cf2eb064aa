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

// A Warmer has the zygotes of a runner: one that loads, and on version 1 of cgroups one more in
// each group of a command, which the first has forked. Its methods are safe for concurrent use.
type Warmer struct {
	launcher func() (launch.Func, error) // nil: no zygote can be started here

	mu      sync.Mutex // guards what is below; held while a zygote is started or forks
	wanted  *agent.Warm
	path    string             // the interpreter
	first   *zygote            // nil: none
	members map[string]*zygote // by group
	until   time.Time          // when it may be started again
}

// New returns a warmer without a zygote. Launcher returns what starts one, with what it gets as
// ambient capabilities; nil: none can be started here.
func New(launcher func() (launch.Func, error)) *Warmer {
	return &Warmer{launcher: launcher, members: map[string]*zygote{}}
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
	if w.first != nil {
		if slices.Equal(w.wanted.Modules, want.Modules) && slices.Equal(w.wanted.Env, want.Env) && w.path == path {
			return w.first.warmed(), nil
		}
		return agent.Warmed{}, &agent.Error{Code: agent.ErrInvalid, Message: "the runner has another zygote"}
	}
	w.wanted, w.path = &want, path
	if err := w.start(); err != nil {
		w.wanted = nil
		return agent.Warmed{}, err
	}
	return w.first.warmed(), nil
}

// start starts the first zygote. w.mu is held.
func (w *Warmer) start() error {
	f, err := w.launcher()
	if err != nil {
		return fmt.Errorf("start a zygote: %w", err)
	}
	const user = confinement.ZygoteUser
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	z := &zygote{control: fds[0]}
	// A place for descriptor 2: what the interpreter says when it can't start.
	says, err := unix.MemfdCreate("stderr", unix.MFD_CLOEXEC)
	if err != nil {
		z.close()
		_ = unix.Close(fds[1])
		return err
	}
	defer func() { _ = unix.Close(says) }()
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		z.close()
		_ = unix.Close(fds[1])
		return err
	}
	defer func() { _ = unix.Close(null) }()
	z.pid, err = f(w.path, []string{w.path, "-c", script}, &syscall.ProcAttr{
		Dir: "/", Env: environment(w.wanted.Env), Files: []uintptr{uintptr(null), uintptr(says), uintptr(says), uintptr(fds[1])},
		Sys: &syscall.SysProcAttr{
			Setsid: true, Credential: &syscall.Credential{Uid: user, Gid: user, Groups: []uint32{user}},
			AmbientCaps: []uintptr{unix.CAP_SETUID, unix.CAP_SETGID},
		},
	})
	_ = unix.Close(fds[1])
	if err != nil {
		z.close()
		return &agent.Error{Code: agent.ErrDenied, Field: "interpreter", Path: w.path, Message: "could not be executed: " + err.Error()}
	}
	if err := z.load(w.wanted.Modules); err != nil {
		z.kill()
		var known *agent.Error
		if !errors.As(err, &known) {
			return &agent.Error{Code: agent.ErrInternal, Field: "interpreter", Path: w.path, Message: "ended while it was loaded: " + lastLine(says)}
		}
		return err
	}
	w.first = z
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

// of returns the zygote that forks for a command in group, and whether the command has to be moved
// there. w.mu is held.
func (w *Warmer) of(group *groups.Group) (z *zygote, move bool, err error) {
	if w.first == nil {
		if time.Now().Before(w.until) {
			return nil, false, errors.New("the zygote has ended")
		}
		w.until = time.Now().Add(restartPause)
		if err := w.start(); err != nil {
			return nil, false, err
		}
	}
	if group == nil || !group.Own() {
		return w.first, false, nil
	}
	if !group.HasProcesses() {
		return w.first, true, nil
	}
	if z, ok := w.members[group.Name()]; ok {
		return z, false, nil
	}
	z, err = w.first.split(group)
	if err != nil {
		return nil, false, err
	}
	w.members[group.Name()] = z
	return z, false, nil
}

// Ready makes the zygote of a group before its first command.
func (w *Warmer) Ready(group *groups.Group) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _, err := w.of(group)
	return err
}

// drop ends all zygotes after one failed: which state it is in is unknown. w.mu is held.
func (w *Warmer) drop() {
	for _, z := range w.members {
		z.kill()
	}
	if w.first != nil {
		w.first.kill()
	}
	w.first, w.until = nil, time.Now().Add(restartPause)
	clear(w.members)
}

// Launch returns what starts a command by a fork of the zygote. The kernel's limits are those of
// package process. An error says that nothing of it runs.
func (w *Warmer) Launch(c Command, group *groups.Group, limits [4]int64) launch.Func {
	return launch.Preferred(func(_ string, argv []string, attr *syscall.ProcAttr) (int, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		z, move, err := w.of(group)
		if err != nil {
			return 0, err
		}
		pid, err := z.start(c, argv, attr, limits, group, move)
		if errors.Is(err, errZygote) {
			w.drop()
		}
		return pid, err
	})
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
