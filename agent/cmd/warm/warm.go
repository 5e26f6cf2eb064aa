// Package warm starts commands of an interpreter from a process that has loaded it and its modules
// before: the zygote. It guarantees that a command has the same user, mark, groups, capabilities
// and filter as one that was executed, before its first instruction. It also guarantees that
// commands can't reach the zygote.
//
// The zygote forks for each command and runs none itself. A command that would run differently in
// it than in a new interpreter is started cold, by an exec.
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

// script is the zygote's program.
//
//go:embed zygote.py
var script string

const (
	loadsWithin = 2 * time.Minute // a zygote must load its modules
	takesWithin = 3 * time.Second // a start gets a child of the zygote, or is cold
)

// A Warmer has a runner's zygote, and children of it that wait to become commands, since a fork
// takes longer than all other steps. A zygote that has ended isn't replaced: commands start cold
// afterwards. Its methods are safe for concurrent use.
type Warmer struct {
	launcher func() (launch.Func, error) // nil if no zygote can be started here
	unreaped func(do func())             // calls do; no child of the agent is reaped before do returns

	loading sync.Mutex             // held while a zygote loads
	zygote  atomic.Pointer[zygote] // nil before one was loaded

	stocking sync.Mutex // held while a child that will wait is forked and moved

	mu     sync.Mutex        // guards spares
	spares map[string]*Spare // waiting children by groupKey
}

// New returns a Warmer without a zygote. Launcher returns a Func that starts one with its ambient
// capabilities; nil means that none can be started. Unreaped calls a function, and reaps no child
// of the agent before that returns.
func New(launcher func() (launch.Func, error), unreaped func(do func())) *Warmer {
	return &Warmer{launcher: launcher, unreaped: unreaped, spares: map[string]*Spare{}}
}

// Prepare starts a zygote of the interpreter at path, and returns when its modules are loaded. A
// second call with the same arguments returns the first one's result. If a module fails, the error
// is an [*agent.Error] with the module's name and the interpreter's message. The caller guarantees
// that no command has run before, because the zygote reads files with capabilities.
func (w *Warmer) Prepare(want agent.Warm, path string) (agent.Warmed, error) {
	w.loading.Lock()
	defer w.loading.Unlock()
	for _, v := range want.Env {
		if name, _, _ := strings.Cut(v, "="); searched(name) {
			return agent.Warmed{}, &agent.Error{Code: agent.ErrInvalid, Field: "interpreter", Path: path, Message: "every command would start cold, because the environment sets the variable " + name}
		}
	}
	if w.launcher == nil {
		return agent.Warmed{}, &agent.Error{Code: agent.ErrDenied, Message: "no interpreter can be preloaded here, because the agent can't give it a user of its own"}
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
		return agent.Warmed{}, &agent.Error{Code: agent.ErrInvalid, Message: "the runner already has another preloaded interpreter"}
	}
	return agent.Warmed{Version: z.version, Memory: z.memory}, nil
}

func (w *Warmer) start(want agent.Warm, path string) (*zygote, error) {
	f, err := w.launcher()
	if err != nil {
		return nil, fmt.Errorf("start a zygote: %w", err)
	}
	// The interpreter's messages, in case it can't start.
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
	pid, err := f(path, []string{path, "-c", script}, &launch.Attr{ProcAttr: syscall.ProcAttr{
		Dir: "/", Env: environment(want.Env), Files: []uintptr{uintptr(null), uintptr(says), uintptr(says), uintptr(theirs)},
		Sys: &syscall.SysProcAttr{
			Setsid: true, Credential: &syscall.Credential{Uid: user, Gid: user, Groups: []uint32{user}},
			AmbientCaps: []uintptr{unix.CAP_SETUID, unix.CAP_SETGID},
		},
	}})
	_ = unix.Close(theirs)
	if err != nil {
		ours.close()
		return nil, &agent.Error{Code: agent.ErrDenied, Field: "interpreter", Path: path, Message: "can't be executed: " + err.Error()}
	}
	z := &zygote{link: ours, unreaped: w.unreaped, wanted: want, path: path, turn: make(chan struct{}, 1)}
	if err := z.load(); err != nil {
		z.close() // the zygote ends, unless it hangs in a module
		w.unreaped(func() {
			if known(pid) == nil {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		})
		if _, known := errors.AsType[*agent.Error](err); !known {
			return nil, &agent.Error{Code: agent.ErrInternal, Field: "interpreter", Path: path, Message: "ended while it was loading: " + lastLine(says)}
		}
		return nil, err
	}
	return z, nil
}

func lastLine(fd int) string {
	buf := make([]byte, 4<<10)
	n, _ := unix.Pread(fd, buf, 0)
	lines := strings.Split(strings.TrimSpace(string(buf[:max(n, 0)])), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return strings.ToValidUTF8(last, "�")
	}
	return "it said nothing"
}

// Stock makes a child of the zygote wait for the next command in group, unless one waits already.
func (w *Warmer) Stock(group *groups.Group) error {
	z, key := w.zygote.Load(), groupKey(group)
	w.stocking.Lock()
	defer w.stocking.Unlock()
	if z == nil || w.waits(key) {
		return nil
	}
	s, err := z.fork(forksWithin)
	if err != nil {
		return err
	}
	if key != sharedGroup {
		group.Keep(s.pid) // before the move, so that it never counts for a command
		if err := s.enter(group); err != nil {
			s.End()
			group.Keep(0)
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spares[key] = s
	return nil
}

func (w *Warmer) waits(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.spares[key] != nil
}

// Take returns a waiting child, in the group if the kernel allows that. The caller owns it.
func (w *Warmer) Take(group *groups.Group) (*Spare, error) {
	if s := w.waiting(group); s != nil {
		return s, nil
	}
	return w.zygote.Load().fork(takesWithin)
}

// waiting removes and returns the child that waits for a command in group; nil if there is none.
func (w *Warmer) waiting(group *groups.Group) *Spare {
	key := groupKey(group)
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.spares[key]
	delete(w.spares, key)
	if s != nil && key != sharedGroup {
		group.Keep(0)
	}
	return s
}

// sharedGroup is the key of children that wait next to the zygote, in the shared group or without a
// group.
const sharedGroup = ""

// groupKey names the group in which a child waits for a command in group. In version 1 of cgroups that is the
// group itself, since a move takes up to 12 ms. In version 2 the end of a command freezes all
// processes of its group, so the child waits elsewhere.
func groupKey(group *groups.Group) string {
	if group == nil || !group.PerCommand() || !group.CanHold() {
		return sharedGroup
	}
	return group.Name()
}

// environment returns a zygote's environment: that of commands, without a home directory and with one
// thread for each library, since threads don't survive a fork.
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

// sameFile reports whether two paths are the same file in the same directory.
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
