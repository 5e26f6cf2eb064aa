package process

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/cmd/confinement"
	"github.com/rockpool/rockpool/agent/cmd/groups"
	"github.com/rockpool/rockpool/agent/cmd/launch"
	"github.com/rockpool/rockpool/agent/cmd/warm"
	"github.com/rockpool/rockpool/agent/serve"
)

// Config says where and how a [Starter] starts commands.
type Config struct {
	Thread      *confinement.Thread         // starts commands of the user if Groups is nil
	Launch      launch.Func                 // starts commands if Groups is nil
	Limits      bool                        // it, and the groups', sets limits of the kernel
	Groups      *groups.Groups              // nil if commands are in the agent's own group
	Guest       *groups.GuestGroup          // the group in the runner's own kernel, nil if it has no kernel of its own
	RunnerGroup *groups.RunnerGroup         // the whole runner's group, set only without Groups and if it is visible
	OwnIPC      bool                        // the namespace of System V objects is this runner's alone
	NoRoot      bool                        // no command may run as root
	Zygote      func() (launch.Func, error) // starts a zygote with its ambient capabilities, nil if none can be started

	// Connections of the runner's network and locks of its files, whose kernel memory is limited.
	Connections interface{ Excessive() (bool, error) }
	Locks       interface {
		Excessive(holds func(pid int) (bool, error)) (bool, error)
	}
}

// A Starter starts commands. Its methods are safe for concurrent use.
type Starter struct {
	Config
	null    int  // descriptor of /dev/null, the stdin of commands without one
	marking bool // commands run as the user, and each execution has a mark
	sharing bool // the kernel counts processes of other runners as this one's, since they have the same user
	reaper  *reaper
	marks   marks
	warm    *warm.Warmer
}

// NewStarter returns a starter. The caller must run [Starter.Reap] in a goroutine afterwards.
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
// Otherwise a process that starts its own session may outlive its execution.
func (s *Starter) Marks() bool { return s.marking }

// Reap reaps the children that have ended after each SIGCHLD. It returns when signals is closed.
func (s *Starter) Reap(signals <-chan os.Signal) {
	for range signals {
		s.reaper.reap()
	}
}

// Start starts the first of candidates (files) that the kernel executes, in a directory. Errors are
// [*agent.Error] values for the client, or internal ones. After an error no process of it is left.
func (s *Starter) Start(start agent.Start, dir string, candidates []string) (serve.Process, error) {
	mark, ok := s.marks.take()
	if !ok {
		return nil, &agent.Error{Code: agent.ErrTooMany, Message: "too many executions run in this runner"}
	}
	p, err := s.start(start, dir, candidates, mark)
	if err != nil {
		s.marks.free(mark)
		return nil, err
	}
	return p, nil
}

// start is Start with a mark. After an error the caller frees the mark.
func (s *Starter) start(start agent.Start, dir string, candidates []string, mark uint32) (*process, error) {
	who, group := confinement.User, confinement.Group
	if start.Privileged {
		if who, group = 0, 0; !s.marking || s.NoRoot {
			return nil, &agent.Error{Code: agent.ErrDenied, Field: "privileged", Message: "commands can't run as root in this runner"}
		}
	}
	owner := 0
	if s.marking {
		owner = int(who)
	}
	ends, err := openStreams(start, s.null, owner)
	if err != nil {
		return nil, &agent.Error{Code: agent.ErrTooMany, Message: "the runner can't create more pipes or terminals: " + err.Error()}
	}
	// While the agent holds the command's ends, the outputs can't end.
	defer ends.handedOver()
	p := &process{streams: ends, starter: s, mark: mark, began: time.Now(), exited: make(chan struct{})}
	if s.Groups != nil {
		if p.group, err = s.Groups.Take(start.Privileged); err != nil {
			ends.close()
			return nil, err
		}
		if p.alone() {
			p.group.Begin()
			p.exact = start.Limits != nil && p.group.LimitProcesses(start.Limits.Processes)
		}
	}
	if s.Guest != nil {
		p.refusedBefore = s.Guest.Refused()
	}
	if s.RunnerGroup != nil {
		p.counters = s.RunnerGroup.Begin()
	}
	attr := &launch.Attr{Limits: s.kernelLimits(p, start), ProcAttr: syscall.ProcAttr{
		Dir: dir, Env: start.Env, Files: ends.files,
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: start.Terminal != nil},
	}}
	if s.marking {
		attr.Sys.Credential = &syscall.Credential{Uid: who, Gid: group, Groups: []uint32{group, mark}}
	}
	// A warm start that fails before the command's first instruction falls back to a cold one.
	done, err := s.executeWarm(p, start, dir, candidates, attr)
	if !done {
		err = s.execute(p, start, candidates, attr)
	}
	if err == nil {
		return p, nil
	}
	p.leaveGroup()
	ends.close()
	if known, ok := errors.AsType[*agent.Error](err); ok {
		return nil, known
	}
	if err == unix.EACCES && s.marking && who == confinement.User && !searchable(dir) {
		return nil, &agent.Error{Code: agent.ErrDenied, Field: "dir", Path: start.Dir, Message: "the command's user may not enter this directory"}
	}
	failure := execError(start.Argv[0], err)
	if err == unix.ENOENT || err == unix.ENOEXEC {
		failure.Message = cmp.Or(misreadScript(dir, candidates[0]), failure.Message)
	}
	return nil, failure
}

// misreadScript returns what makes the kernel misread the first line of a script, and what to do.
func misreadScript(dir, file string) string {
	if !path.IsAbs(file) {
		file = dir + "/" + file
	}
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = unix.Close(fd) }()
	begin := make([]byte, 256) // as many as the kernel reads (BINPRM_BUF_SIZE)
	n, _ := unix.Read(fd, begin)
	line, _, _ := bytes.Cut(begin[:max(n, 0)], []byte("\n"))
	switch {
	case bytes.HasPrefix(line, []byte("\xef\xbb\xbf#!")):
		return "begins with a byte order mark (BOM), which hides its #! from the kernel: save the file as UTF-8 without BOM"
	case bytes.HasPrefix(line, []byte("#!")) && bytes.HasSuffix(line, []byte("\r")):
		return "the first line (#!) ends in a carriage return (CR), which the kernel takes as part of the interpreter's name: save the file with Unix line ends (LF), for example with dos2unix"
	}
	return ""
}

func (s *Starter) execute(p *process, start agent.Start, candidates []string, attr *launch.Attr) (err error) {
	f := s.Launch
	switch {
	case p.group != nil:
		f = p.group.Launch
	// The thread has an empty bounding set, so a command of root can't start on it.
	case !start.Privileged:
		f = f.On(s.Thread)
	}
	if attr.Limits != (launch.Limits{}) && !s.Limits {
		return s.executeLimited(p, f, start, candidates, attr)
	}
	for _, file := range candidates {
		if err = s.reaper.start(p, f, file, start.Argv, attr); err != unix.EACCES && err != unix.ENOENT {
			break
		}
	}
	return cmp.Or(s.ifHeldUp(p), err)
}

// ifHeldUp kills a process whose start was held up, and returns the error for it.
func (s *Starter) ifHeldUp(p *process) error {
	if !p.heldUp {
		return nil
	}
	s.giveUp(p)
	return launch.ErrHeldUp
}

// giveUp kills a process whose start failed after its fork, and frees its resources.
func (s *Starter) giveUp(p *process) {
	p.Kill(0)
	<-p.exited
	s.reaper.forget(p)
}

// searchable reports whether the mode of a directory lets the user enter it.
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

func execError(name string, err error) *agent.Error {
	e := &agent.Error{Field: "argv", Path: name}
	switch err {
	case launch.ErrHeldUp:
		return &agent.Error{Code: agent.ErrTooMany, Message: err.Error()}
	case unix.EACCES, unix.EPERM:
		e.Code, e.Message = agent.ErrDenied, "isn't executable"
	case unix.ENOENT, unix.ENOTDIR:
		e.Code, e.Message = agent.ErrNotFound, "the interpreter in its first line (#!) doesn't exist"
	case unix.ENOEXEC, unix.ELIBBAD:
		e.Code, e.Message = agent.ErrWrongType, "isn't a program for this machine, and its first line has no #!"
	case unix.E2BIG:
		e.Code, e.Message = agent.ErrInvalid, "the arguments and the environment are longer than the kernel allows"
	case unix.EAGAIN, unix.ENOMEM:
		e.Code, e.Message = agent.ErrTooMany, "the runner has reached its limit of processes: end some, and retry"
	case unix.ETXTBSY:
		e.Code, e.Message = agent.ErrDenied, "is open for writing: close it, and retry"
	default:
		e.Code, e.Message = agent.ErrInternal, "can't be executed: "+err.Error()
	}
	return e
}
