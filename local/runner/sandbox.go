package runner

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/local/host"
	"github.com/rockpool/rockpool/local/network/access"
	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// createWithin bounds how long the helper may take to make a sandbox.
const createWithin = 30 * time.Second

// Images are the images that runners are made from; see package image.
type Images interface {
	Root(digest string) (string, error)
	Want(reference, digest string)
}

// A Sandbox makes one runner's sandbox, with the agent as its first process. Its Runner calls its
// methods one at a time, except Ping.
type Sandbox struct {
	Group    string // its cgroup, as a path below the mount
	Counters *Counters
	Root     atomic.Value // the name of its root directory, a string; nil until a sandbox is made or found

	config  Config
	network *access.Runner
}

// Prepare allocates the runner's directory and user ids, unless slot is set, and ensures that
// everything exists that Create needs. An image was unpacked before runners were requested. If it is
// missing, it is pulled again, and a later attempt can find it.
func (s *Sandbox) Prepare(ctx context.Context, slot *int) (*int, error) {
	env := s.config.Environment
	if slot == nil {
		number, err := s.config.Host.Reserve(s.config.ID)
		if err != nil {
			return nil, err
		}
		slot = &number
	}
	// Both may have become unsupported since the environment was put.
	err := sandbox.Supported(env)
	if err == nil {
		err = s.config.Network.Supported(env.Network)
	}
	if err != nil {
		return slot, &sandbox.Failure{Message: err.Error(), Unrecoverable: true, Err: err}
	}
	if err := s.config.Host.BuildRoot(ctx); err != nil {
		return slot, host.Explained(err)
	}
	if env.Pin.Digest == "" {
		return slot, nil
	}
	if _, err := s.config.Images.Root(env.Pin.Digest); err != nil {
		s.config.Images.Want(env.Image, env.Pin.Digest)
		return slot, &sandbox.Failure{Message: "its image is missing and is being pulled again", Err: err}
	}
	return slot, nil
}

// Release releases the runner's directory and user ids, and stops serving its network. Without a
// slot it searches for the ids: a server may have died before it recorded them.
func (s *Sandbox) Release(slot *int) error {
	s.network.Close()
	if slot == nil {
		return s.config.Host.Release(s.config.ID)
	}
	return s.config.Host.Release(s.config.ID, *slot)
}

// Create lets the helper make the sandbox. After an error, parts of it may be left for Destroy.
func (s *Sandbox) Create(ctx context.Context, slot int) (Handle, *Process, error) {
	file, err := s.config.Host.OpenSocket(s.config.ID, s.config.Environment)
	if err != nil {
		return nil, nil, host.Explained(err)
	}
	defer file.Close()
	ctx, cancel := context.WithTimeout(ctx, createWithin)
	defer cancel()
	answer, err := s.config.Host.Launcher.Create(ctx, s.Group, sandbox.Request(string(s.config.ID), s.config.Environment, slot), file)
	if err != nil {
		return nil, nil, host.Explained(err)
	}
	// The agent may have ended already. Its start time differs from that of a later process with the same id.
	first, err := openPidfd(answer.PID, answer.Start)
	if errors.Is(err, errHidden) {
		return nil, nil, &sandbox.Failure{Message: errHidden.Error(), Err: err}
	}
	if err != nil {
		return nil, nil, &sandbox.Failure{Message: "its agent ended immediately; the server's log says more", Err: err}
	}
	p := Process{PID: answer.PID, Start: answer.Start, Root: s.config.Host.Root, Address: answer.Address}
	s.record(p, slot, answer.Groups, 0)
	return first, &p, nil
}

// Reattach returns the handle of a running sandbox. The process must have the recorded id and start
// time, and be in the runner's cgroups. An error that wraps ErrUnread: whether it lives is unknown.
func (s *Sandbox) Reattach(ctx context.Context, p Process, slot int) (Handle, error) {
	var first *pidfd
	var groups cgroup.Groups
	var kills int64
	err := untilRead(ctx, func() (err error) {
		if first, err = openPidfd(p.PID, p.Start); err != nil {
			return err
		}
		// The runner has survived the OOM kills that are counted by now.
		if groups, err = s.config.Host.Trees.Member(p.PID, s.Group); err == nil {
			kills, _, err = groups.Counts()
		}
		if err != nil {
			first.Close()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	// Without its packet filter, the runner must not be used again.
	if err := s.network.Restore(ctx, slot); err != nil {
		first.Close()
		return nil, fmt.Errorf("restore its network: %w", err)
	}
	s.record(p, slot, groups, kills)
	return first, nil
}

func (s *Sandbox) record(p Process, slot int, groups cgroup.Groups, kills int64) {
	s.Counters.Open(groups, kills)
	s.network.Record(slot, p.Start, p.Address)
	s.Root.Store(p.Root)
}

// ErrUnread means that it can't be determined whether a runner is alive.
var ErrUnread = errors.New("can't determine whether it is alive")

// findOutWithin bounds how long a new server tries to find out whether a runner is alive;
// findOutEvery is the interval of the tries.
const (
	findOutWithin = 10 * time.Second
	findOutEvery  = 200 * time.Millisecond
)

// untilRead calls read until its error, or nil, says whether the runner is alive. After
// findOutWithin it returns the last error with ErrUnread.
func untilRead(ctx context.Context, read func() error) error {
	ctx, cancel := context.WithTimeout(ctx, findOutWithin)
	defer cancel()
	for {
		err := read()
		if err == nil || !unread(err) {
			return err
		}
		if backoff.Sleep(ctx, findOutEvery) != nil {
			return fmt.Errorf("%w: %w", ErrUnread, err)
		}
	}
}

// unread reports whether an error of a system call leaves open whether the runner is alive, such as
// EACCES, EMFILE and a hidden process. Other errors say that its process or its cgroups no longer exist; EINVAL says
// that its process id is now a thread's.
func unread(err error) bool {
	number, failed := errors.AsType[syscall.Errno](err)
	return errors.Is(err, errHidden) || failed && number != unix.ESRCH && number != unix.EINVAL && !gone(err)
}

// Exited returns why the agent ended, as far as the kernel's counters say.
func (s *Sandbox) Exited() Exit {
	s.network.Close()
	exit := Exit{runtime.GoneAgentDied, "the agent ended"}
	last, err := s.Counters.Count()
	switch {
	case err != nil:
	case s.Counters.Killed(last):
		exit = Exit{runtime.GoneOutOfMemory, "the kernel killed the agent because the runner's memory was full"}
	case last.OwnKernel && last.ProcessLimitHits > 0: // gVisor's own limit for commands is lower and is met first
		exit.Message = "its gVisor kernel ended after it had reached the machine's process limit for the sandbox"
	}
	return exit
}

// Destroy kills what still runs, and removes the sandbox with its network, wholly or partly made.
// Host.Removals limits concurrent removals.
func (s *Sandbox) Destroy(ctx context.Context) error {
	return s.config.Host.Removals.Do(ctx, func() error {
		_, _ = s.Counters.Count() // the last chance to read the counters
		// Otherwise a verification could report that the packet filter was changed.
		s.network.Drop()
		err := s.config.Host.Launcher.Remove(ctx, string(s.config.ID), s.Group)
		if err == nil {
			s.Counters.Close()
		}
		return err
	})
}

// Bounds of the wait for an agent's answer. A new agent may wait for CPU on a busy machine. One
// that ran all the time needs less, and delays the server's start.
const (
	answerWithin      = 10 * time.Second
	answerAgainWithin = 5 * time.Second
	warmWithin        = 2 * time.Minute // loading the interpreter
)

// Ready maps the runner's ports, waits for its agent, and preloads the interpreter of its
// environment. An error means that the runner is unusable. A restored one has its interpreter, and
// lives on without its ports: those are mapped again later.
func (s *Sandbox) Ready(ctx context.Context, restored bool) error {
	if err := s.network.Map(restored); err != nil {
		return err
	}
	within := answerWithin
	if restored {
		within = answerAgainWithin
	}
	answer, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := s.Ping(answer); err != nil {
		message := "its agent ended immediately or didn't answer; the server's log says more"
		if errors.Is(err, context.DeadlineExceeded) {
			message = "its agent wasn't ready in time: the machine is too busy, or its CPU limit too low"
		}
		return &sandbox.Failure{Message: message, Err: fmt.Errorf("ping its agent: %w", err)}
	}
	if s.config.Environment.Warm == nil || restored {
		return nil
	}
	ctx, cancel = context.WithTimeout(ctx, warmWithin)
	defer cancel()
	return s.warm(ctx)
}

// Ping connects to the runner's agent, and returns nil once it answers.
func (s *Sandbox) Ping(ctx context.Context) error {
	conn, err := s.config.Host.Dial(ctx, s.config.ID)
	if err != nil {
		return err
	}
	_, err = agent.PingAgent(ctx, conn)
	return err
}

// warm loads the interpreter. Its error explains to clients why that failed.
func (s *Sandbox) warm(ctx context.Context) error {
	variables, defaults := s.config.Environment.CommandVariables(false, false, nil)
	conn, err := s.config.Host.Dial(ctx, s.config.ID)
	if err == nil {
		var warmed agent.Warmed
		warmed, err = agent.WarmAgent(ctx, conn, agent.Warm{
			Interpreter: agent.InterpreterPython, Modules: s.config.Environment.Warm.Modules, Env: variables, Defaults: defaults,
		})
		if err == nil {
			loaded := runtime.Loaded{Version: agent.Shorten(warmed.Version), Memory: max(warmed.Memory, 0)}
			s.config.Show(func(shown *runtime.Runner) { shown.Loaded = &loaded })
			return nil
		}
	}
	message := "its interpreter couldn't be loaded; the server's log says more"
	known, refused := errors.AsType[*agent.Error](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		message = fmt.Sprintf("its interpreter wasn't loaded within %s", warmWithin)
	case refused && known.Field == "modules":
		message = fmt.Sprintf("the module %s of warm.modules %s", known.Path, known.Message)
	case refused:
		message = fmt.Sprintf("its interpreter (warm.interpreter %s) couldn't be loaded: %s", runtime.InterpreterPython, known.Error())
	}
	return &sandbox.Failure{Message: message, Err: fmt.Errorf("warm up: %w", err)}
}
