// Package session leads one execution from its record to its stored end. Each execution gets exactly one
// outcome, based on evidence, and no caller sees it before it is stored.
//
// One goroutine, Session.Run, decides everything about it: when to reopen the stream to the agent, why to
// kill the execution, whether the agent is late, and what the outcome is. All other goroutines send it
// messages. Slow work runs in workers that Run waits for and that report back by messages. One worker
// at a time owns the stream: it writes events to the log and acknowledges them, with no other goroutine
// in between.
//
//	record ─▶ attempt: dial, start or attach, copy output ─▶ exit ─▶ the end is stored ─▶ Done
//	             ▲                    │                                  ▲
//	             └──── pause ◀── the stream broke                        │
//	                                  └── refused, or the runner went ───┘
//
// Output is acknowledged only after it is in the log, or its loss is recorded.
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
	"github.com/rockpool/rockpool/runtime/output"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/syncs"
	"github.com/rockpool/rockpool/runtime/timing"
)

// A Cluster is the part of runtime.Cluster that a session needs.
type Cluster interface {
	Dial(ctx context.Context, id runtime.RunnerID) (net.Conn, error)
	Evidence(ctx context.Context, id runtime.RunnerID) (runtime.Evidence, error)
}

// A Store stores what the next server needs; see package store.
type Store interface {
	PutExecution(ctx context.Context, x runtime.Execution, start []byte, inputEnd *int64) error
	FinishExecution(ctx context.Context, x runtime.Execution, bytes int64) (kept int64, err error)
	NoteKilled(ctx context.Context, id runtime.ExecutionID, outcome runtime.Outcome) error
	NoteInputEnd(ctx context.Context, id runtime.ExecutionID, offset int64) error
	Neighbours(ctx context.Context, id runtime.RunnerID, since time.Time) (bool, error)
	ExpectedOutput(ctx context.Context, at runtime.BatchPosition, offset int64, p []byte) (n int, err error)
	Leads(ctx context.Context) error // CLUSTER_UNAVAILABLE: another server leads
}

// A Pool is the part of a runner's pool that a session needs.
type Pool interface {
	Done(ctx context.Context, id runtime.RunnerID)
	Release(ctx context.Context, id runtime.RunnerID) (bool, error)
}

// A Disk holds the logs of all executions.
type Disk interface {
	MakeRoom(ctx context.Context, bytes int64) // as far as possible
	Wrote(bytes int64)                         // of output
	Lost(bytes int64, err error)               // of output that could not be written
}

// A Host holds what all sessions of a server share.
type Host struct {
	Cluster Cluster
	Store   Store
	Disk    Disk
	Quota   *output.Quota // nil means none
	Logger  *zap.Logger
	Boot    timing.Boot // the zero value means the times of earlier servers follow the wall clock

	Began func(after time.Duration)             // a command that this server started began so long after it was queued
	Ended func(s *Session, x runtime.Execution) // the end x is stored, and no caller has seen it yet

	charges charges
}

// A Session is one unfinished execution. Its methods are safe for concurrent use.
type Session struct {
	host      *Host
	runner    runtime.Runner
	queued    time.Time // Timestamps.QueuedAt, on the clock of this process
	begin     Begin
	recovered *recovered // of an earlier server; nil means this server recorded the execution
	record    record
	input     input
	kept      *quota.Kept

	now     atomic.Pointer[runtime.Execution]
	stream  syncs.Latest[*agent.Session] // to write to; nil means none
	started chan struct{}                // closed when it runs, or has ended without running
	noted   chan struct{}                // closed when the reason for a kill is stored, or Run has returned
	done    chan struct{}                // closed when its end is stored

	kills  chan runtime.Outcome    // capacity 1: only the first reason counts
	goes   chan runtime.GoneReason // capacity 1: why the runner ended; only the first reason counts
	lapsed atomic.Bool             // its lease ended
	shared atomic.Bool             // another execution ran in the same runner
}

// New returns the session of a newly recorded execution. Call Run once.
func (h *Host) New(runner runtime.Runner, x runtime.Execution, begin Begin, log *output.Log) *Session {
	s := &Session{
		host: h, runner: runner, queued: x.Timestamps.QueuedAt, begin: begin,
		input:   input{turn: make(chan struct{}, 1), whole: begin.Input},
		started: make(chan struct{}),
		noted:   make(chan struct{}),
		done:    make(chan struct{}),
		kills:   make(chan runtime.Outcome, 1),
		goes:    make(chan runtime.GoneReason, 1),
	}
	if begin.Input != nil {
		s.begin.Input, s.input.length = nil, new(int64(len(*begin.Input)))
		s.input.feeding.Store(true)
	}
	h.charges.enter(runner.ID, begin.Before.CPU)
	s.record.session, s.record.log = s, log.Within(h.Quota)
	s.now.Store(&x)
	s.stream.Set(nil)
	return s
}

// Execution returns the latest state.
func (s *Session) Execution() runtime.Execution { return *s.now.Load() }

// timeline returns the time of an event in the execution: its QueuedAt plus the time since then. So a step
// of the wall clock neither moves its limits nor falsifies the time between two of its timestamps.
func (s *Session) timeline(now time.Time) time.Time {
	return s.Execution().Timestamps.QueuedAt.Add(now.Sub(s.queued))
}

// Received returns how many bytes of output have arrived.
func (s *Session) Received() int64 { return s.record.received.Load() }

// Runner returns the id of its runner.
func (s *Session) Runner() runtime.RunnerID { return s.runner.ID }

// Keep makes the session free memory: the start's as soon as the agent has it, the stdin's with Fed,
// and the rest at the end. Call it before Run.
func (s *Session) Keep(kept *quota.Kept) { s.kept = kept }

// Stored returns the size of its start as it was stored, in bytes.
func (s *Session) Stored() int64 { return s.begin.Encoded }

// Log returns its output log, for readers.
func (s *Session) Log() *output.Log { return s.record.log }

// Started returns a channel that is closed when it runs, or has ended without running.
func (s *Session) Started() <-chan struct{} { return s.started }

// Done returns a channel that is closed when its end is stored.
func (s *Session) Done() <-chan struct{} { return s.done }

// MarkShared records that another execution runs in the same runner, so that the host's counters can't be
// attributed to one of them.
func (s *Session) MarkShared() { s.shared.Store(true) }

// RunnerGone reports that the runner is being removed or has ended. It never blocks. The first reason
// counts; "" means unknown.
func (s *Session) RunnerGone(reason runtime.GoneReason) {
	if reason == "" {
		reason = runtime.GoneUnknown
	}
	syncs.Offer(s.goes, reason)
}

// Kill ends the execution with outcome; the first reason counts. It returns once the reason is stored, so
// that a later server also knows it, once the execution has ended, or when ctx ends.
func (s *Session) Kill(ctx context.Context, outcome runtime.Outcome) {
	s.hintKill(outcome)
	select {
	case <-s.noted:
	case <-s.done:
	case <-ctx.Done():
	}
}

// Lapse cancels the execution, because its client didn't renew its lease. It waits like Kill.
func (s *Session) Lapse(ctx context.Context) {
	s.lapsed.Store(true)
	s.Kill(ctx, runtime.OutcomeCancelled)
}

// hintKill is like Kill but doesn't wait.
func (s *Session) hintKill(outcome runtime.Outcome) { syncs.Offer(s.kills, outcome) }

// Signal sends a signal ("SIGTERM") to the command, once it runs.
func (s *Session) Signal(ctx context.Context, name string) error {
	return s.control(ctx, func(stream *agent.Session) error { return stream.Signal(name) })
}

// Resize changes the size of the command's terminal, once it runs.
func (s *Session) Resize(ctx context.Context, size runtime.TerminalSize) error {
	return s.control(ctx, func(stream *agent.Session) error { return stream.Resize(agent.Size(size)) })
}

// control calls send with a stream to the agent, as soon as there is one. If that breaks, it tries the
// next one. CONFLICT means that the agent is too old for the request.
func (s *Session) control(ctx context.Context, send func(*agent.Session) error) error {
	for {
		stream, changed := s.stream.Get()
		if stream != nil {
			err := send(stream)
			if refused, ok := errors.AsType[*agent.Error](err); ok {
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

// Ended returns the error for a request that came after an execution's end.
func Ended(x runtime.Execution) error {
	if x.End.Outcome == runtime.OutcomeRunnerGone {
		return runtime.Errorf(runtime.CodeRunnerGone, "runner %q is gone or never existed", x.RunnerID)
	}
	return runtime.Errorf(runtime.CodeConflict, "execution %s has ended", x.ID)
}

// change updates the execution. Only the goroutine that owns it may call it: the worker of an attempt,
// and Run between attempts.
func (s *Session) change(f func(runtime.Execution) runtime.Execution) runtime.Execution {
	x := f(s.Execution())
	s.now.Store(&x)
	return x
}

// closeOnce closes a channel, which only one goroutine may close, unless it is closed already.
func closeOnce(c chan struct{}) {
	if !syncs.Closed(c) {
		close(c)
	}
}
