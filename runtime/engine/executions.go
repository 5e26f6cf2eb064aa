package engine

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/files"
	"github.com/rockpool/rockpool/runtime/output"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/session"
	"github.com/rockpool/rockpool/runtime/store"
)

// Bounds of commands, below the kernel's (MAX_ARG_STRLEN is 128 KiB).
const (
	maxArgBytes     = 128<<10 - 1 // of one argument
	maxCommandBytes = 1 << 20     // of all arguments
	maxCommandArgs  = 4096
)

// Start records an execution, starts it in the background, and returns it PENDING. Later errors
// become the execution's outcome. It is idempotent by key: the same key returns the same execution,
// or CONFLICT if the input differs.
func (e *Engine) Start(ctx context.Context, in StartInput) (runtime.Execution, error) {
	x, err := in.execution()
	if err != nil {
		return runtime.Execution{}, err
	}
	if in.Key != "" {
		x.Key = keyOf(in.Keys, "start/"+in.Key)
	}
	return e.start(ctx, in, x)
}

// start stores an execution and runs it in a session. A retry with the same key returns the stored
// execution. In order, it counts a use of the runner, counts the execution against the tenant's
// quota, and stores it; each failure undoes the steps before. Once the execution is stored, it runs
// even if this server stops: the next one starts it.
func (e *Engine) start(ctx context.Context, in StartInput, x runtime.Execution) (runtime.Execution, error) {
	if x.Key != "" {
		if stored, found, err := e.store.ExecutionByKey(ctx, x.Key); err != nil || found {
			return e.repeated(stored, x, err)
		}
		// A run (Release) shares its key with the claim of its runner.
		if spent, found, err := e.store.SpentKey(ctx, x.Key, e.clock.Now()); err != nil || found && !x.Release {
			return runtime.Execution{}, collected(spent, x, err)
		}
	}
	p, err := e.poolOf(x.RunnerID)
	if err != nil {
		return runtime.Execution{}, err
	}
	runner, err := p.Use(ctx, x.RunnerID) // until the session ends
	if err != nil {
		return runtime.Execution{}, err
	}
	env := runner.Environment
	x.EnvironmentID, x.Tenant = env.ID, runner.Tenant()
	if x.Labels, err = runtime.WithLabels(runner.Claim.Labels, in.Labels); err != nil {
		p.Done(ctx, x.RunnerID)
		return runtime.Execution{}, err
	}
	if in.TimeLimit == nil {
		x.TimeLimit = env.DefaultTimeLimit
	}
	x.OutputLimit = env.OutputLimit
	if in.OutputLimit != nil {
		x.OutputLimit = *in.OutputLimit
		if err := runtime.Between("limits.outputBytes", x.OutputLimit, runtime.MinOutputLimit, env.OutputLimit, "bytes (the environment's outputLimit)"); err != nil {
			p.Done(ctx, x.RunnerID)
			return runtime.Execution{}, err
		}
	}
	if x.Batch == nil {
		if err := e.holdings.begin(x.Tenant); err != nil {
			p.Done(ctx, x.RunnerID)
			return runtime.Execution{}, err
		}
	}
	x.Marks.QueuedAt = e.clock.Now()
	begin := session.Begin{Queued: e.boot.Moment(x.Marks.QueuedAt), Dir: in.WorkingDirectory, Input: in.input, Fed: x.Batch != nil}
	begin.Env, begin.Defaults = env.CommandVariables(x.Privileged, x.Terminal != nil, in.Variables)
	switch {
	case begin.Dir != "":
	case x.Release:
		begin.Dir = runtime.Workspace // a run with its own files starts where they are
	default:
		begin.Dir = env.Pin.WorkingDirectory
	}
	// The counts before the start show later what has increased since.
	before, err := e.cluster.Evidence(ctx, x.RunnerID)
	begin.Before, begin.Counted = before, err == nil
	encoded := begin.Encode()
	begin.Encoded = int64(len(encoded))
	stored, added := x, false
	kept, err := e.keepExecution(x, begin)
	switch {
	case err != nil:
	case x.Batch != nil: // a batch that has begun isn't refused
		e.inputs.adopt(x.Tenant, inputOf(x, begin.Encoded))
	default:
		err = e.inputs.add(ctx, x.Tenant, inputOf(x, begin.Encoded))
	}
	if err == nil {
		if stored, added, err = e.store.AddExecution(ctx, x, encoded); err != nil || !added {
			e.inputs.release(x.Tenant, inputOf(x, begin.Encoded))
		}
	}
	if err != nil || !added {
		kept.Free()
		if x.Batch == nil {
			e.holdings.end(x.Tenant)
		}
		p.Done(ctx, x.RunnerID)
		return e.repeated(stored, x, err)
	}
	s := e.host.New(runner, x, begin, output.New(e.logs.Place(x.ID)))
	s.Keep(kept)
	e.sessions.add(s)
	e.leaseExecution(x)
	e.counts.started.Add(1)
	if err := e.jobs.add(func(ctx context.Context) { s.Run(ctx, p) }); err != nil {
		return runtime.Execution{}, err // it is recorded, so the next server starts it
	}
	if r, ok := e.Runner(runner.ID); !ok || r.State != runtime.RunnerClaimed {
		s.RunnerGone(r.GoneReason) // the runner was gone before observe could find the session
	}
	return x, nil
}

// keepExecution takes the memory of an execution. A batch has taken it for all of its executions.
func (e *Engine) keepExecution(x runtime.Execution, begin session.Begin) (*quota.Kept, error) {
	if x.Batch != nil {
		return nil, nil
	}
	start, input := begin.Bytes()
	return e.memory.Keep(x.Tenant, bytesOfExecution(x)+start+input, "an execution")
}

// repeated returns the execution that used this key before.
func (e *Engine) repeated(stored, x runtime.Execution, err error) (runtime.Execution, error) {
	if err != nil {
		return runtime.Execution{}, err
	}
	if stored.Input != x.Input {
		return runtime.Execution{}, keyConflict()
	}
	if s := e.sessions.get(stored.ID); s != nil {
		return s.Execution(), nil
	}
	return stored, nil
}

// collected returns the error for a key whose execution was removed by retention.
func collected(spent store.SpentKey, x runtime.Execution, err error) error {
	switch {
	case err != nil:
		return err
	case spent.Input != x.Input:
		return keyConflict()
	default:
		return runtime.Errorf(runtime.CodeExecutionNotFound, "the execution with this idempotencyKey has been removed by retention; use a new key to run it again")
	}
}

// Cancel ends an execution and all its processes: SIGTERM first, SIGKILL after a grace period. It
// returns when the execution has ended, or after two seconds. An ended one stays unchanged.
func (e *Engine) Cancel(ctx context.Context, id runtime.ExecutionID) (runtime.Execution, error) {
	if s := e.sessions.get(id); s != nil {
		s.Kill(ctx, runtime.OutcomeCancelled)
	}
	return e.Execution(ctx, id, 2*time.Second)
}

// WriteStdin writes to a running command's stdin and returns the offset after the accepted bytes. It
// blocks while the command doesn't read. After ten seconds it returns LIMIT_EXCEEDED.
func (e *Engine) WriteStdin(ctx context.Context, in StdinInput) (int64, error) {
	s, x, err := e.find(ctx, in.ExecutionID)
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

// Execution returns an execution once it has ended, or its current state after wait.
func (e *Engine) Execution(ctx context.Context, id runtime.ExecutionID, wait time.Duration) (runtime.Execution, error) {
	if s := e.sessions.get(id); s != nil {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-s.Done():
		case <-timer.C:
		case <-ctx.Done():
			return runtime.Execution{}, context.Cause(ctx)
		}
		return s.Execution(), nil
	}
	return e.store.Execution(ctx, id)
}

// Executions returns a page of the executions after an id, oldest or newest first, with the number of
// all that match. It calls charge with the size of each record in bytes, and returns charge's error.
func (e *Engine) Executions(ctx context.Context, filter ExecutionFilter, first int, after runtime.ExecutionID, charge func(bytes int) error) (store.ExecutionPage, error) {
	if err := validateSearch(filter); err != nil {
		return store.ExecutionPage{}, err
	}
	page, err := e.store.Executions(ctx, filter, first, after, charge)
	for i, x := range page.Executions {
		if s := e.sessions.get(x.ID); s != nil {
			page.Executions[i] = s.Execution() // newer than what is stored
		}
	}
	return page, err
}

// Validate returns INVALID_INPUT as Start does, except for rules that depend on the runner.
func (in StartInput) Validate() error {
	_, err := in.execution()
	return err
}

// execution checks the input and returns the execution that it describes.
func (in StartInput) execution() (runtime.Execution, error) {
	x := runtime.Execution{
		ID: runtime.NewExecutionID(), RunnerID: in.RunnerID, State: runtime.ExecutionPending,
		Shell: in.Shell != nil || in.shell, Line: cmp.Or(in.line, in.CommandLine), Stdin: in.Stdin || in.Terminal != nil, Terminal: in.Terminal, Privileged: in.Privileged,
	}
	var err error
	if x.Command, err = command(in.Command, in.Shell); err != nil {
		return x, err
	}
	if err := runtime.ValidateCommandLine(in.CommandLine); err != nil {
		return x, err
	}
	if err := runtime.ValidateLabels(in.Labels); err != nil {
		return x, err
	}
	if err := runtime.ValidateVariables("variables", in.Variables); err != nil {
		return x, err
	}
	if in.WorkingDirectory != "" {
		if err := files.ValidatePath("workingDirectory", in.WorkingDirectory); err != nil {
			return x, err
		}
	}
	if in.TimeLimit != nil {
		if x.TimeLimit, err = seconds("timeLimit", *in.TimeLimit, runtime.MaxTimeLimit); err != nil {
			return x, err
		}
	}
	if in.Lease != nil {
		if err := runtime.Between("lease", int64(*in.Lease), int64(minLease/time.Second), int64(maxLease/time.Second), "seconds"); err != nil {
			return x, err
		}
		x.Lease = time.Duration(*in.Lease) * time.Second
	}
	if in.Terminal != nil {
		if err := validateTerminal("terminal.", *in.Terminal); err != nil {
			return x, err
		}
	}
	if x.Limits, err = in.limits(); err != nil {
		return x, err
	}
	if in.OutputLimit != nil {
		if err := runtime.Between("limits.outputBytes", *in.OutputLimit, runtime.MinOutputLimit, runtime.MaxOutputLimit, "bytes"); err != nil {
			return x, err
		}
	}
	if err := validateKey(in.Key); err != nil {
		return x, err
	}
	request := in
	request.Key = "" // the input identifies what a key was used for, so it excludes the key
	x.Input = digest(request)
	return x, nil
}

// limits checks and returns the limits that the agent enforces.
func (in StartInput) limits() (l runtime.Limits, err error) {
	if in.CPUSeconds != nil {
		if err := runtime.Between("limits.cpuSeconds", int64(*in.CPUSeconds), 1, int64(runtime.MaxTimeLimit/time.Second), "seconds"); err != nil {
			return l, err
		}
		l.CPU = time.Duration(*in.CPUSeconds) * time.Second
	}
	if in.Processes != nil {
		if err := runtime.Between("limits.processes", int64(*in.Processes), 1, runtime.MaxProcesses, "processes"); err != nil {
			return l, err
		}
		l.Processes = *in.Processes
	}
	if in.OpenFiles != nil {
		if err := runtime.Between("limits.openFiles", int64(*in.OpenFiles), runtime.MinOpenFiles, runtime.MaxOpenFiles, "files"); err != nil {
			return l, err
		}
		l.OpenFiles = *in.OpenFiles
	}
	if in.FileSize != nil {
		if err := runtime.Between("limits.fileSize", *in.FileSize, 1, runtime.MaxFileSize, "bytes"); err != nil {
			return l, err
		}
		l.FileSize = *in.FileSize
	}
	return l, nil
}

// validateTerminal checks the size of a terminal. In errors, prefix precedes the field's name.
func validateTerminal(prefix string, size runtime.TerminalSize) error {
	if err := runtime.Between(prefix+"columns", int64(size.Columns), 1, runtime.MaxTerminalSize, "columns"); err != nil {
		return err
	}
	return runtime.Between(prefix+"rows", int64(size.Rows), 1, runtime.MaxTerminalSize, "rows")
}

// command returns the argv that a client requested.
func command(argv []string, script *string) ([]string, error) {
	switch {
	case script != nil && argv != nil:
		return nil, runtime.Invalid("command", "give either command or shell, not both")
	case script == nil && len(argv) == 0:
		return nil, runtime.Invalid("command", "must name a program (argv), or give shell instead")
	case script == nil && argv[0] == "":
		return nil, runtime.Invalid("command.0", "must name a program")
	case script != nil && *script == "":
		return nil, runtime.Invalid("shell", "must not be empty")
	case script != nil:
		if err := argument("shell", *script); err != nil {
			return nil, err
		}
		return []string{runtime.Shell, "-c", *script}, nil
	}
	if len(argv) > maxCommandArgs {
		return nil, runtime.Invalid("command", "must be at most %d arguments, not %d", maxCommandArgs, len(argv))
	}
	total := 0
	for i, arg := range argv {
		if err := argument(fmt.Sprintf("command.%d", i), arg); err != nil {
			return nil, err
		}
		total += len(arg)
	}
	if total > maxCommandBytes {
		return nil, runtime.Invalid("command", "must be at most %d bytes in total, not %d", maxCommandBytes, total)
	}
	return argv, nil
}

// argument checks one argument of a command. Errors name field.
func argument(field, arg string) error {
	if len(arg) > maxArgBytes || strings.ContainsRune(arg, 0) {
		return runtime.Invalid(field, "must be at most %d bytes without NUL", maxArgBytes)
	}
	return nil
}
