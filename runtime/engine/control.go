package engine

import (
	"context"
	"slices"
	"strings"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/session"
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
	return e.control(ctx, id, func(s *session.Session) error { return s.Signal(ctx, "SIG"+name) })
}

// Resize gives the terminals of a running command another size. It waits until
// the command runs.
func (e *Engine) Resize(ctx context.Context, id runtime.ExecutionID, size runtime.TerminalSize) (runtime.Execution, error) {
	if err := validateTerminal("", size); err != nil {
		return runtime.Execution{}, err
	}
	if s := e.sessions.get(id); s != nil && s.Execution().Terminal == nil {
		return runtime.Execution{}, runtime.Invalid("executionId", "this execution was started without a terminal: start it with terminal")
	}
	return e.control(ctx, id, func(s *session.Session) error { return s.Resize(ctx, size) })
}

// control calls tell with the session of an execution that hasn't ended.
func (e *Engine) control(ctx context.Context, id runtime.ExecutionID, tell func(*session.Session) error) (runtime.Execution, error) {
	s, x, err := e.find(ctx, id)
	if err != nil {
		return runtime.Execution{}, err
	}
	if s == nil {
		return runtime.Execution{}, session.Ended(x)
	}
	if err := tell(s); err != nil {
		return runtime.Execution{}, err
	}
	return s.Execution(), nil
}
