package executions

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/output"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/session"
	"github.com/rockpool/rockpool/runtime/store"
)

// A Service serves executions to callers. An execution that a caller doesn't see doesn't exist for
// it: the error is EXECUTION_NOT_FOUND. Methods are safe for concurrent use.
type Service struct {
	auth     *audit.Authorizer
	registry *Registry
}

// NewService returns the Service of a registry.
func NewService(auth *audit.Authorizer, registry *Registry) *Service { return &Service{auth, registry} }

// Get returns an execution once it has ended, or its current state after wait.
func (s *Service) Get(ctx context.Context, id runtime.ExecutionID, wait time.Duration) (runtime.Execution, error) {
	p, err := s.auth.Allow(ctx, "execution")
	if err != nil {
		return runtime.Execution{}, err
	}
	x, err := s.registry.Get(ctx, id, 0)
	switch {
	case err != nil:
		return x, err
	case !p.SeesExecution(x):
		return runtime.Execution{}, store.NotFound(id)
	case wait == 0 || x.State == runtime.ExecutionFinished:
		return x, nil
	}
	return s.registry.Get(ctx, id, wait)
}

// List returns a page of the executions after an id, of the caller's tenant or of all, oldest or newest
// first, with the number of all that match. A page may have fewer
// than first; see [store.Store.Executions].
func (s *Service) List(ctx context.Context, filter request.Executions, first int, after runtime.ExecutionID) (store.ExecutionPage, error) {
	p, err := s.auth.Allow(ctx, "executions")
	if err != nil {
		return store.ExecutionPage{}, err
	}
	if err := request.CheckExecutions(filter); err != nil {
		return store.ExecutionPage{}, err
	}
	filter.Tenant = p.Only()
	page, err := s.registry.Store.Executions(ctx, filter, first, after)
	s.registry.Refresh(page.Executions)
	return page, err
}

// Events returns a reader of an execution's events after a cursor; "" is the beginning. Close it.
func (s *Service) Events(ctx context.Context, id runtime.ExecutionID, after string) (*events.Reader, error) {
	return audit.Do(ctx, s.auth, "executionEvents", s.registry.Object(ctx, id), func() (*events.Reader, error) {
		return s.registry.Events(ctx, id, after)
	})
}

// Usage returns what an execution has used so far. It returns nil if the execution isn't RUNNING, or
// if its agent doesn't answer within a second. See [usage.Agents] for the age of the data. It checks
// nothing: x must come from a call that did.
func (s *Service) Usage(ctx context.Context, x runtime.Execution) *runtime.UsageNow {
	running := s.registry.Session(x.ID)
	if running == nil || x.State != runtime.ExecutionRunning {
		return nil
	}
	used, at := s.registry.Agents.Usage(ctx, x.RunnerID, x.Tenant)
	one, runs := used.Executions[string(x.ID)]
	if !runs {
		return nil
	}
	return &runtime.UsageNow{
		At: at, Wall: one.Wall, User: one.User, System: one.System, OutputBytes: running.Received(),
		Memory: one.Memory, PeakMemory: one.PeakMemory, Processes: one.Processes, PeakProcesses: one.PeakProcesses,
	}
}

// WriteStdin writes to a running command's stdin and returns the offset after the accepted bytes. It
// blocks while the command doesn't read. After ten seconds it returns LIMIT_EXCEEDED.
func (s *Service) WriteStdin(ctx context.Context, in request.Stdin) (int64, error) {
	return audit.Do(ctx, s.auth, "writeStdin", s.registry.Object(ctx, in.ExecutionID), func() (int64, error) {
		return s.registry.WriteStdin(ctx, in)
	})
}

// WriteStdin is Service.WriteStdin for the server itself.
func (r *Registry) WriteStdin(ctx context.Context, in request.Stdin) (int64, error) {
	s, x, err := r.Find(ctx, in.ExecutionID)
	if err != nil {
		return 0, err
	}
	if s == nil {
		return 0, session.Ended(x)
	}
	if !s.Execution().Stdin {
		return 0, runtime.Invalid("executionId", "names an execution without stdin: start it with stdin: true or with a terminal")
	}
	return s.WriteStdin(ctx, session.Input{Data: in.Data, Offset: in.Offset, Close: in.Close})
}

// signals are the signals that Signal may send: those of POSIX, and SIGWINCH.
var signals = []string{
	"ABRT", "ALRM", "BUS", "CHLD", "CONT", "FPE", "HUP", "ILL", "INT", "KILL", "PIPE", "PROF", "QUIT", "SEGV", "STOP", "SYS",
	"TERM", "TRAP", "TSTP", "TTIN", "TTOU", "URG", "USR1", "USR2", "VTALRM", "WINCH", "XCPU", "XFSZ",
}

// Signal sends a signal ("TERM" or "SIGTERM") to the process group of a running command and, on a
// terminal, to its foreground group. It waits until the command runs.
func (s *Service) Signal(ctx context.Context, id runtime.ExecutionID, signal string) (runtime.Execution, error) {
	return audit.Do(ctx, s.auth, "signalExecution", s.registry.Object(ctx, id), func() (runtime.Execution, error) {
		name := strings.TrimPrefix(signal, "SIG")
		if !slices.Contains(signals, name) {
			return runtime.Execution{}, runtime.Invalid("signal", "must be one of %s, with or without SIG before it", strings.Join(signals, ", "))
		}
		return s.registry.control(ctx, id, func(running *session.Session) error { return running.Signal(ctx, "SIG"+name) })
	})
}

// Resize changes the size of a running command's terminal. It waits until the command runs.
func (s *Service) Resize(ctx context.Context, id runtime.ExecutionID, size runtime.TerminalSize) (runtime.Execution, error) {
	return audit.Do(ctx, s.auth, "resizeTerminal", s.registry.Object(ctx, id), func() (runtime.Execution, error) {
		if err := request.CheckTerminal("", &size); err != nil {
			return runtime.Execution{}, err
		}
		if running := s.registry.Session(id); running != nil && running.Execution().Terminal == nil {
			return runtime.Execution{}, runtime.Invalid("executionId", "names an execution without a terminal: start it with terminal")
		}
		return s.registry.control(ctx, id, func(running *session.Session) error { return running.Resize(ctx, size) })
	})
}

// Cancel ends an execution and all its processes: SIGTERM first, SIGKILL after a grace period. It
// returns when the execution has ended, or after two seconds. An ended one stays unchanged.
func (s *Service) Cancel(ctx context.Context, id runtime.ExecutionID) (runtime.Execution, error) {
	return audit.Do(ctx, s.auth, "cancelExecution", s.registry.Object(ctx, id), func() (runtime.Execution, error) {
		if running := s.registry.Session(id); running != nil {
			running.Kill(ctx, runtime.OutcomeCancelled)
		}
		return s.registry.Get(ctx, id, 2*time.Second)
	})
}

// control calls send with the session of an unfinished execution.
func (r *Registry) control(ctx context.Context, id runtime.ExecutionID, send func(*session.Session) error) (runtime.Execution, error) {
	s, x, err := r.Find(ctx, id)
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

const maxPageBytes = 16 << 20

// Output opens a page of the output that exists after a cursor, of about maxBytes; see
// [events.Page]. Close it.
func (s *Service) Output(ctx context.Context, id runtime.ExecutionID, after string, maxBytes int) (*events.Page, error) {
	if err := s.auth.See(ctx, "output", s.registry.Object(ctx, id)); err != nil {
		return nil, err
	}
	if err := runtime.Between("maxBytes", int64(maxBytes), 1, maxPageBytes, "bytes"); err != nil {
		return nil, err
	}
	r, err := s.registry.Events(ctx, id, after)
	if err != nil {
		return nil, err
	}
	return events.NewPage(r, maxBytes), nil
}

// A Record is a piece of output that Output.Next returns.
type Record = output.Record

// An Output is what an execution had printed when it was opened. It is for one goroutine. Close it.
type Output struct {
	*output.Content
	Execution runtime.Execution
	lost      int64
}

// Lost returns how many printed bytes, on either stream, aren't stored.
func (o *Output) Lost() int64 { return o.lost }

// OpenOutput opens what an execution has printed so far on one stream; 0 means both, in the order in
// which they were printed.
func (s *Service) OpenOutput(ctx context.Context, id runtime.ExecutionID, stream runtime.Stream) (*Output, error) {
	if err := s.auth.See(ctx, "output", s.registry.Object(ctx, id)); err != nil {
		return nil, err
	}
	running, x, err := s.registry.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	var content *output.Content
	if running != nil {
		x = running.Execution()
		content, err = running.Log().Content(ctx, stream)
	} else {
		content, err = output.OpenContent(ctx, s.registry.Logs.Location(id), stream)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, store.NotFound(id) // retention has just removed it
	}
	if err != nil {
		return nil, err
	}
	o := &Output{Content: content, Execution: x, lost: content.Lost()}
	if x.State == runtime.ExecutionFinished {
		o.lost += max(0, x.Usage.OutputBytes-content.End())
	}
	return o, nil
}
