package process

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/cmd/confinement"
	"github.com/rockpool/rockpool/agent/cmd/groups"
	"github.com/rockpool/rockpool/agent/cmd/launch"
	"github.com/rockpool/rockpool/agent/cmd/streams"
	"github.com/rockpool/rockpool/agent/cmd/warm"
	"github.com/rockpool/rockpool/agent/serve"
)

// Config says where and how a [Starter] starts commands.
type Config struct {
	Thread *confinement.Thread         // starts commands of the user where Groups is nil
	Launch launch.Func                 // starts commands where Groups is nil
	Groups *groups.Groups              // nil: commands are in the agent's own
	Inner  *groups.Inner               // of the runner's own kernel; nil: it has none
	Whole  *groups.Whole               // that the runner is in, where Groups is nil; nil: it can't be seen
	OwnIPC bool                        // objects of System V here are this runner's alone
	NoRoot bool                        // no command may be root
	Zygote func() (launch.Func, error) // starts a zygote, with what it gets as ambient capabilities; nil: none can be

	// Connections of the runner's network, and locks of its files.
	Connections interface{ Excessive() (bool, error) }
	Locks       interface {
		Excessive(holds func(pid int) (bool, error)) (bool, error)
	}
}

// A Starter starts commands. Its methods are safe for concurrent use.
type Starter struct {
	Config
	null    int  // /dev/null, for commands without stdin
	marking bool // commands run as the user, each execution with a mark of its own
	sharing bool // the kernel counts other runners' processes as this one's
	reaper  *reaper
	marks   marks
	warm    *warm.Warmer
}

// NewStarter returns a starter. [Starter.Reap] must run from then on.
func NewStarter(c Config) (*Starter, error) {
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/null: %w", err)
	}
	s := &Starter{Config: c, reaper: newReaper(), null: null, marking: canMark()}
	s.warm = warm.New(c.Zygote, s.reaper.unreaped)
	s.sharing = s.marking && ofMachine()
	return s, nil
}

// Marks reports whether commands run as a user of their own, and each execution has a mark.
// Otherwise a process that leaves its session may outlive its execution.
func (s *Starter) Marks() bool { return s.marking }

// Reap waits for each child of the agent that ends, after each SIGCHLD, until there are no more
// signals.
func (s *Starter) Reap(signals <-chan os.Signal) {
	for range signals {
		s.reaper.reap()
	}
}

// Start starts the first of candidates, which are files, that the kernel takes, in a directory.
func (s *Starter) Start(start agent.Start, dir string, candidates []string) (serve.Process, error) {
	mark, ok := s.marks.take()
	if !ok {
		return nil, &agent.Error{Code: agent.ErrTooMany, Message: "too many executions run"}
	}
	p, err := s.start(start, dir, candidates, mark)
	if err != nil {
		s.marks.free(mark)
		return nil, err
	}
	return p, nil
}

func (s *Starter) start(start agent.Start, dir string, candidates []string, mark uint32) (*process, error) {
	who, group := confinement.User, confinement.Group
	if start.Privileged {
		if who, group = 0, 0; !s.marking || s.NoRoot {
			return nil, &agent.Error{Code: agent.ErrDenied, Field: "privileged", Message: "the agent may not run commands as root here"}
		}
	}
	owner := 0
	if s.marking {
		owner = int(who)
	}
	ends, err := streams.Open(start, s.null, owner)
	if err != nil {
		return nil, &agent.Error{Code: agent.ErrTooMany, Message: "no room for pipes or terminals: " + err.Error()}
	}
	defer ends.HandedOver()
	p := &process{Streams: ends, starter: s, mark: mark, began: time.Now(), exited: make(chan struct{})}
	if s.Groups != nil {
		if p.group, err = s.Groups.Take(start.Privileged); err != nil {
			ends.Close()
			return nil, err
		}
		if p.alone() {
			p.group.Begin()
		}
	}
	if s.Inner != nil {
		p.refusedBefore = s.Inner.Refused()
	}
	if s.Whole != nil {
		p.whole = s.Whole.Begin()
	}
	attr := &syscall.ProcAttr{
		Dir: dir, Env: start.Env, Files: ends.Files,
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: start.Terminal != nil},
	}
	if s.marking {
		attr.Sys.Credential = &syscall.Credential{Uid: who, Gid: group, Groups: []uint32{group, mark}}
	}
	done, err := s.executeWarm(p, start, dir, candidates, attr)
	if !done {
		err = s.execute(p, start, candidates, attr)
	}
	if err == nil {
		return p, nil
	}
	p.leaveGroup()
	ends.Close()
	var known *agent.Error
	if errors.As(err, &known) {
		return nil, known
	}
	if err == unix.EACCES && s.marking && who == confinement.User && !searchable(dir) {
		return nil, &agent.Error{Code: agent.ErrDenied, Field: "dir", Path: start.Dir, Message: "may not be entered"}
	}
	return nil, execError(start.Argv[0], err)
}

// execute starts the first of candidates that the kernel takes.
func (s *Starter) execute(p *process, start agent.Start, candidates []string, attr *syscall.ProcAttr) (err error) {
	f := s.Launch
	switch {
	case p.group != nil:
		f = p.group.Launch
	case !start.Privileged:
		f = f.On(s.Thread)
	}
	if limits := start.Limits; limits != nil && *limits != (agent.Limits{}) {
		return s.executeLimited(p, f, start, candidates, attr)
	}
	for _, file := range candidates {
		if err = s.reaper.start(p, f, file, start.Argv, attr); err != unix.EACCES && err != unix.ENOENT {
			break
		}
	}
	return cmp.Or(s.ifHeldUp(p), err)
}

// ifHeldUp ends a process whose start was held up, and returns the error that says so.
func (s *Starter) ifHeldUp(p *process) error {
	if !p.heldUp {
		return nil
	}
	s.giveUp(p)
	return launch.ErrHeldUp
}

// giveUp ends a process whose start failed after its fork.
func (s *Starter) giveUp(p *process) {
	p.Kill(0)
	<-p.exited
	s.reaper.forget(p)
}

// searchable reports whether the user may enter a directory by its mode.
func searchable(dir string) bool {
	var stat unix.Stat_t
	if unix.Stat(dir, &stat) != nil {
		return false
	}
	switch {
	case stat.Uid == confinement.User:
		return stat.Mode&0o100 != 0
	case stat.Gid == confinement.Group:
		return stat.Mode&0o010 != 0
	default:
		return stat.Mode&0o001 != 0
	}
}

// execError converts an errno of the exec of a command.
func execError(name string, err error) *agent.Error {
	e := &agent.Error{Field: "argv", Path: name}
	switch err {
	case launch.ErrHeldUp:
		return &agent.Error{Code: agent.ErrTooMany, Message: err.Error()}
	case unix.EACCES, unix.EPERM:
		e.Code, e.Message = agent.ErrDenied, "may not be executed"
	case unix.ENOENT, unix.ENOTDIR:
		e.Code, e.Message = agent.ErrNotFound, "the interpreter that it names isn't there"
	case unix.ENOEXEC, unix.ELIBBAD:
		e.Code, e.Message = agent.ErrWrongType, "no program for this machine, and no #! in its first line"
	case unix.E2BIG:
		e.Code, e.Message = agent.ErrInvalid, "the arguments and the environment are too long for the kernel"
	case unix.EAGAIN, unix.ENOMEM:
		e.Code, e.Message = agent.ErrTooMany, "the runner has no room for another process"
	case unix.ETXTBSY:
		e.Code, e.Message = agent.ErrDenied, "is being written"
	default:
		e.Code, e.Message = agent.ErrInternal, "could not be executed: "+err.Error()
	}
	return e
}
