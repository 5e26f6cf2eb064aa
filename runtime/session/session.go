// Package session leads one execution from its record to its stored end.
//
// One goroutine, Session.Run, owns what is decided about it: when a stream to the agent
// is opened again, why the execution is killed, whether its agent is late, and what its
// outcome is. Everything else sends it messages. What is slow runs in workers that Run
// waits for, and that report back as messages. One worker at a time has the stream: it
// writes what comes to the log and acknowledges it, with no other goroutine in between.
//
//	record ─▶ attempt: dial, start or attach, copy output ─▶ exit ─▶ the end is stored ─▶ Done
//	             ▲                    │                                  ▲
//	             └──── pause ◀── the stream broke                        │
//	                                  └── refused, or the runner went ───┘
//
// Output is acknowledged only once the log has it, or its loss is recorded. The outcome
// rests on evidence, and nobody sees it before it is stored.
package session

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/latest"
	"github.com/rockpool/rockpool/runtime/output"
)

// A Cluster is what a session needs of a runtime.Cluster.
type Cluster interface {
	Dial(ctx context.Context, id runtime.RunnerID) (net.Conn, error)
	Evidence(ctx context.Context, id runtime.RunnerID) (runtime.Evidence, error)
}

// A Store keeps what the next server needs to know: see package store.
type Store interface {
	PutExecution(ctx context.Context, x runtime.Execution) error
	FinishExecution(ctx context.Context, x runtime.Execution, bytes int64) (kept int64, err error)
	NoteKilled(ctx context.Context, id runtime.ExecutionID, outcome runtime.Outcome) error
	NoteInputEnd(ctx context.Context, id runtime.ExecutionID, offset int64) error
	Neighbours(ctx context.Context, id runtime.RunnerID, since time.Time) (bool, error)
	Leads(ctx context.Context) error // CLUSTER_UNAVAILABLE: another server does
}

// A Pool is what a session needs of its runner's pool.
type Pool interface {
	Done(ctx context.Context, id runtime.RunnerID)
	Release(ctx context.Context, id runtime.RunnerID) (bool, error)
}

// A Disk has the logs of all executions.
type Disk interface {
	MakeRoom(ctx context.Context, bytes int64) // as far as that is possible
	Wrote(bytes int64)                         // of output
	Lost(bytes int64, err error)               // of output, which could not be written
}

// A Host is what all sessions of a server share.
type Host struct {
	Cluster Cluster
	Store   Store
	Disk    Disk
	Quota   *output.Quota // nil: none
	Logger  *zap.Logger

	Began func(after time.Duration)             // a command of this server's began so long after it was queued
	Ended func(s *Session, x runtime.Execution) // its end x is stored, and nobody has seen it yet

	charges charges
}

// A Session is one execution that isn't finished. Its methods are safe for concurrent
// use.
type Session struct {
	host   *Host
	runner runtime.Runner
	begin  Begin
	left   *left // what an earlier server left; nil: this one recorded the execution
	record record
	input  input

	now     atomic.Pointer[runtime.Execution]
	stream  latest.Value[*agent.Session] // the one to write to; nil: there is none
	started chan struct{}                // closed when it runs, or has ended without
	noted   chan struct{}                // closed when why it is killed is stored, or Run has returned
	done    chan struct{}                // closed when it has ended and that is stored

	kills   chan runtime.Outcome    // capacity 1: the first reason counts
	goes    chan runtime.GoneReason // capacity 1, likewise: why the runner does
	crowded atomic.Bool             // another execution ran in the runner meanwhile
}

// New returns the session of an execution that was just recorded.
func (h *Host) New(runner runtime.Runner, x runtime.Execution, begin Begin, log *output.Log) *Session {
	s := &Session{
		host: h, runner: runner, begin: begin,
		input:   input{turn: make(chan struct{}, 1)},
		started: make(chan struct{}),
		noted:   make(chan struct{}),
		done:    make(chan struct{}),
		kills:   make(chan runtime.Outcome, 1),
		goes:    make(chan runtime.GoneReason, 1),
	}
	h.charges.enter(runner.ID, begin.Before.CPU)
	s.record.session, s.record.log = s, log.Within(h.Quota)
	s.now.Store(&x)
	s.stream.Set(nil)
	return s
}

// Execution returns the newest state.
func (s *Session) Execution() runtime.Execution { return *s.now.Load() }

// Received returns how many bytes of output have come.
func (s *Session) Received() int64 { return s.record.received.Load() }

// Runner returns the id of its runner.
func (s *Session) Runner() runtime.RunnerID { return s.runner.ID }

// Begin returns what is stored of how it was started.
func (s *Session) Begin() Begin { return s.begin }

// Log returns its output, for readers.
func (s *Session) Log() *output.Log { return s.record.log }

// Started is closed when it runs, or has ended without.
func (s *Session) Started() <-chan struct{} { return s.started }

// Done is closed when it has ended and that is stored.
func (s *Session) Done() <-chan struct{} { return s.done }

// Crowd notes that another execution runs in the same runner: what the host counts there
// can't be told apart between them.
func (s *Session) Crowd() { s.crowded.Store(true) }

// RunnerGone notes that the runner goes, or went. It never blocks. The first reason
// counts; "" is an unknown one.
func (s *Session) RunnerGone(reason runtime.GoneReason) {
	if reason == "" {
		reason = runtime.GoneUnknown
	}
	select {
	case s.goes <- reason:
	default:
	}
}

// Kill ends the execution because of outcome; the first reason counts. It returns once
// the reason is stored, for a server that sees the end without having asked for it.
func (s *Session) Kill(ctx context.Context, outcome runtime.Outcome) {
	s.hintKill(outcome)
	select {
	case <-s.noted:
	case <-s.done:
	case <-ctx.Done():
	}
}

// hintKill is Kill without waiting.
func (s *Session) hintKill(outcome runtime.Outcome) {
	select {
	case s.kills <- outcome:
	default:
	}
}

// Signal sends a signal ("SIGTERM") to the command, once it runs.
func (s *Session) Signal(ctx context.Context, name string) error {
	return s.control(ctx, func(stream *agent.Session) error { return stream.Signal(name) })
}

// Resize gives the command's terminals another size, once it runs.
func (s *Session) Resize(ctx context.Context, size runtime.TerminalSize) error {
	return s.control(ctx, func(stream *agent.Session) error { return stream.Resize(agent.Size(size)) })
}

// control calls tell with a stream to the agent, once there is one; where the stream
// breaks, with the next one. CONFLICT: the agent is too old.
func (s *Session) control(ctx context.Context, tell func(*agent.Session) error) error {
	for {
		stream, changed := s.stream.Get()
		if stream != nil {
			err := tell(stream)
			var refused *agent.Error
			if errors.As(err, &refused) {
				return runtime.Wrap(runtime.CodeConflict, err, "%s: claim a new runner", refused.Message)
			}
			if err == nil {
				return nil
			}
		}
		select {
		case <-changed:
		case <-s.done:
			return Ended(s.Execution())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Ended is the error of a caller that comes too late for an execution.
func Ended(x runtime.Execution) error {
	if x.End.Outcome == runtime.OutcomeRunnerGone {
		return runtime.Errorf(runtime.CodeRunnerGone, "runner %q isn't there (any more)", x.RunnerID)
	}
	return runtime.Errorf(runtime.CodeConflict, "execution %s has ended", x.ID)
}

// change is for the one goroutine that has the execution: the worker of an attempt, and
// Run between attempts.
func (s *Session) change(f func(runtime.Execution) runtime.Execution) runtime.Execution {
	x := f(s.Execution())
	s.now.Store(&x)
	return x
}

// closeOnce closes a channel that only one goroutine closes.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}
