package engine

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
)

// signals are those that SignalExecution sends: POSIX's, and SIGWINCH.
var signals = []string{
	"ABRT", "ALRM", "BUS", "CHLD", "CONT", "FPE", "HUP", "ILL", "INT", "KILL", "PIPE", "PROF", "QUIT", "SEGV", "STOP", "SYS",
	"TERM", "TRAP", "TSTP", "TTIN", "TTOU", "URG", "USR1", "USR2", "VTALRM", "WINCH", "XCPU", "XFSZ",
}

// Signal sends a signal ("TERM" or "SIGTERM") to the process group of a running
// command and, on a terminal, to the group in the foreground there. It waits
// until the command runs.
func (e *Engine) Signal(ctx context.Context, id runtime.ExecutionID, signal string) (runtime.Execution, error) {
	name := strings.TrimPrefix(signal, "SIG")
	if !slices.Contains(signals, name) {
		return runtime.Execution{}, runtime.Invalid("signal", "must be one of %s, with or without SIG before it", strings.Join(signals, ", "))
	}
	return e.control(ctx, id, func(stream *agent.Session) error { return stream.Signal("SIG" + name) })
}

// Resize gives the terminals of a running command another size. It waits until
// the command runs.
func (e *Engine) Resize(ctx context.Context, id runtime.ExecutionID, size runtime.TerminalSize) (runtime.Execution, error) {
	if err := validateTerminal("", size); err != nil {
		return runtime.Execution{}, err
	}
	if s := e.session(id); s != nil && s.execution().Terminal == nil {
		return runtime.Execution{}, runtime.Invalid("executionId", "this execution was started without a terminal: start it with terminal")
	}
	return e.control(ctx, id, func(stream *agent.Session) error { return stream.Resize(agent.Size(size)) })
}

// control has tell called with a stream to the agent, once there is one; one
// that breaks is replaced.
func (e *Engine) control(ctx context.Context, id runtime.ExecutionID, tell func(*agent.Session) error) (runtime.Execution, error) {
	s, x, err := e.find(ctx, id)
	if err != nil {
		return runtime.Execution{}, err
	}
	if s == nil {
		return runtime.Execution{}, ended(x)
	}
	for {
		s.mu.Lock()
		stream, joined := s.stream, s.joined
		s.mu.Unlock()
		if stream != nil {
			err := tell(stream)
			var refused *agent.Error
			if errors.As(err, &refused) {
				return runtime.Execution{}, runtime.Wrap(runtime.CodeConflict, err, "%s: claim a new runner", refused.Message)
			}
			if err == nil {
				return s.execution(), nil
			}
		}
		select {
		case <-joined:
		case <-s.done:
			return runtime.Execution{}, ended(s.execution())
		case <-ctx.Done():
			return runtime.Execution{}, context.Cause(ctx)
		}
	}
}
