package engine

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
	"github.com/rockpool/rockpool/runtime/session"
)

// A sessionTable holds the sessions of unfinished executions.
type sessionTable struct {
	mu       sync.Mutex // guards the fields below
	byID     map[runtime.ExecutionID]*session.Session
	byRunner map[runtime.RunnerID][]*session.Session
}

func newSessionTable() *sessionTable {
	return &sessionTable{byID: map[runtime.ExecutionID]*session.Session{}, byRunner: map[runtime.RunnerID][]*session.Session{}}
}

// add registers a session. It marks the sessions that share a runner, since the host's counters can't
// be attributed to one of them.
func (t *sessionTable) add(s *session.Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := s.Runner()
	t.byID[s.Execution().ID] = s
	t.byRunner[id] = append(t.byRunner[id], s)
	if len(t.byRunner[id]) > 1 {
		for _, other := range t.byRunner[id] {
			other.MarkShared()
		}
	}
}

// remove forgets a session that has ended.
func (t *sessionTable) remove(s *session.Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := s.Runner()
	delete(t.byID, s.Execution().ID)
	t.byRunner[id] = slices.DeleteFunc(t.byRunner[id], func(other *session.Session) bool { return other == s })
	if len(t.byRunner[id]) == 0 {
		delete(t.byRunner, id)
	}
}

// get returns the session of an unfinished execution, or nil.
func (t *sessionTable) get(id runtime.ExecutionID) *session.Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// in returns the sessions in one runner.
func (t *sessionTable) in(id runtime.RunnerID) []*session.Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.byRunner[id])
}

func (t *sessionTable) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byID)
}

// count returns how many executions of a tenant, or of all for nil, are running and pending.
func (t *sessionTable) count(tenant *runtime.TenantID) (running, pending int) {
	t.mu.Lock()
	all := make([]*session.Session, 0, len(t.byID))
	for _, s := range t.byID {
		all = append(all, s)
	}
	t.mu.Unlock()
	for _, s := range all {
		switch x := s.Execution(); {
		case tenant != nil && x.Tenant != *tenant:
		case x.State == runtime.ExecutionPending:
			pending++
		case x.State == runtime.ExecutionRunning:
			running++
		}
	}
	return running, pending
}

// ended implements session.Host.Ended.
func (e *Engine) ended(s *session.Session, x runtime.Execution) {
	e.counts.finished[x.End.Outcome].Add(1)
	e.failures.Ended(e.clock.Now(), x)
	e.holdings.ended(x)
	e.leases.end(string(x.ID))
	e.inputs.release(x.Tenant, inputOf(x, s.Stored()))
	e.sessions.remove(s) // from here on, callers read the stored execution
}

// findEvery is the interval of polls for a session that is being made.
const findEvery = 20 * time.Millisecond

// find returns the session of an execution or, if that has ended, the execution. It waits for the
// session of an execution that has just been stored.
func (e *Engine) find(ctx context.Context, id runtime.ExecutionID) (*session.Session, runtime.Execution, error) {
	for {
		if s := e.sessions.get(id); s != nil {
			return s, runtime.Execution{}, nil
		}
		x, err := e.store.Execution(ctx, id)
		if err != nil || x.State == runtime.ExecutionFinished {
			return nil, x, err
		}
		if err := backoff.Sleep(ctx, findEvery); err != nil {
			return nil, x, err
		}
	}
}

// signals are the signals that SignalExecution may send: those of POSIX, and SIGWINCH.
var signals = []string{
	"ABRT", "ALRM", "BUS", "CHLD", "CONT", "FPE", "HUP", "ILL", "INT", "KILL", "PIPE", "PROF", "QUIT", "SEGV", "STOP", "SYS",
	"TERM", "TRAP", "TSTP", "TTIN", "TTOU", "URG", "USR1", "USR2", "VTALRM", "WINCH", "XCPU", "XFSZ",
}

// Signal sends a signal ("TERM" or "SIGTERM") to the process group of a running command and, on a
// terminal, to its foreground group. It waits until the command runs.
func (e *Engine) Signal(ctx context.Context, id runtime.ExecutionID, signal string) (runtime.Execution, error) {
	name := strings.TrimPrefix(signal, "SIG")
	if !slices.Contains(signals, name) {
		return runtime.Execution{}, runtime.Invalid("signal", "must be one of %s, with or without SIG before it", strings.Join(signals, ", "))
	}
	return e.control(ctx, id, func(s *session.Session) error { return s.Signal(ctx, "SIG"+name) })
}

// Resize changes the size of a running command's terminal. It waits until the command runs.
func (e *Engine) Resize(ctx context.Context, id runtime.ExecutionID, size runtime.TerminalSize) (runtime.Execution, error) {
	if err := validateTerminal("", size); err != nil {
		return runtime.Execution{}, err
	}
	if s := e.sessions.get(id); s != nil && s.Execution().Terminal == nil {
		return runtime.Execution{}, runtime.Invalid("executionId", "names an execution without a terminal: start it with terminal")
	}
	return e.control(ctx, id, func(s *session.Session) error { return s.Resize(ctx, size) })
}

// control calls send with the session of an unfinished execution.
func (e *Engine) control(ctx context.Context, id runtime.ExecutionID, send func(*session.Session) error) (runtime.Execution, error) {
	s, x, err := e.find(ctx, id)
	if err != nil {
		return runtime.Execution{}, err
	}
	if s == nil {
		return runtime.Execution{}, session.Ended(x)
	}
	if err := send(s); err != nil {
		return runtime.Execution{}, err
	}
	return s.Execution(), nil
}
