package engine

import (
	"cmp"
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/batch"
	"github.com/rockpool/rockpool/runtime/files"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/session"
)

// spare is the inactivity timeout of a runner that Execute claimed. It ends the runner if no server
// is left to release it.
const spare = time.Minute

// Execute does everything in one call: it claims a runner, writes files, stores the execution, starts
// the command, and feeds its stdin. It returns the execution PENDING once it is stored; the command
// starts in the background, as with Start. The runner is released when the execution ends. All input
// is checked before the claim. It is idempotent by key: the same key returns the same execution, also
// concurrently, or CONFLICT if the input differs.
func (e *Engine) Execute(ctx context.Context, in RunInput) (runtime.Execution, error) {
	run, err := e.prepareRun(in)
	if err != nil {
		return runtime.Execution{}, err
	}
	x, start, claim := run.execution, run.start, run.claim
	x.Release = true
	whole := func(ctx context.Context) (runtime.Execution, error) { return e.claimAndStart(ctx, in, claim, start, x) }
	if in.Key == "" {
		return whole(ctx)
	}
	request := in
	// A retry may wait longer or shorter.
	request.Key, request.WaitFor = "", nil
	x.Key, x.Input = keyOf(in.Keys, "run/"+in.Key), digest(request)
	claim.Claim.Key, claim.Claim.Input = x.Key, x.Input
	made, _, err := e.runs.Do(ctx, x.Key, x.Input, e.jobs.add, func(ctx context.Context) (runtime.Execution, error) {
		if stored, found, err := e.store.ExecutionByKey(ctx, x.Key); err != nil || found {
			return e.repeated(stored, x, err)
		}
		return e.keeping(in.Tenant, bytesOfRun(in), func() (runtime.Execution, error) { return whole(ctx) })
	})
	return made, keyError(err)
}

// RunBatch is like Execute, for a batch. It claims and releases one runner for the batch, or one
// for each case, and writes the files to each runner.
func (e *Engine) RunBatch(ctx context.Context, in RunInput, of BatchInput) (runtime.Batch, runtime.Execution, error) {
	run, err := e.prepareRun(in)
	if err != nil {
		return runtime.Batch{}, runtime.Execution{}, err
	}
	if in.Stdin != nil {
		return runtime.Batch{}, runtime.Execution{}, errOwnStdin()
	}
	b := runtime.Batch{ID: runtime.NewBatchID(), EnvironmentID: in.EnvironmentID, Tenant: in.Tenant, Release: !of.FreshRunners}
	shared, steps, err := of.plan(&b, run.start)
	if err != nil {
		return b, runtime.Execution{}, err
	}
	shared.WorkingDirectory = cmp.Or(shared.WorkingDirectory, runtime.Workspace) // where its files are
	whole := func(ctx context.Context) (runtime.Execution, error) {
		return e.claimAndStartBatch(ctx, b, in, run.claim, shared, steps)
	}
	// Each case claims its own runner, so the batch claims none.
	if of.FreshRunners {
		shared.Files, shared.Protected, shared.WaitFor = in.Files, in.Protected, in.WaitFor
		whole = func(ctx context.Context) (runtime.Execution, error) {
			return e.startBatch(ctx, b, in.Caller, shared, steps)
		}
	}
	if in.Key == "" {
		x, err := whole(ctx)
		return e.started(ctx, x, err)
	}
	request := in
	request.Key, request.WaitFor = "", nil
	b.Key, b.Input = keyOf(in.Keys, "run/"+in.Key), digest([]any{request, of})
	run.claim.Claim.Key, run.claim.Claim.Input = b.Key, b.Input
	x, _, err := e.runs.Do(ctx, b.Key, b.Input, e.jobs.add, func(ctx context.Context) (runtime.Execution, error) {
		if stored, found, err := e.store.BatchByKey(ctx, b.Key); err != nil || found {
			return e.repeatedBatch(ctx, stored, b, err)
		}
		return e.keeping(in.Tenant, bytesOfRun(in, of.Cases...), func() (runtime.Execution, error) { return whole(ctx) })
	})
	return e.started(ctx, x, keyError(err))
}

// claimAndStartBatch claims a runner for a batch, writes the batch's files into it, and starts the
// batch. If a later step fails, the runner is released.
func (e *Engine) claimAndStartBatch(ctx context.Context, b runtime.Batch, in RunInput, claim pool.Claim, shared batch.Shared, steps []batch.Step) (runtime.Execution, error) {
	if err := e.holdings.room(b.Tenant); err != nil {
		return runtime.Execution{}, err
	}
	runner, err := e.claimIn(ctx, in.EnvironmentID, claim)
	if err != nil {
		return runtime.Execution{}, err
	}
	b.RunnerID = runner.ID
	err = e.fill(ctx, runner.ID, in.Files, in.Protected)
	var x runtime.Execution
	if err == nil {
		x, err = e.startBatch(ctx, b, in.Caller, shared, steps)
	}
	if err != nil {
		e.releaseLater(runner.ID)
	}
	return x, err
}

// keeping calls start with the memory of a run that continues when its caller disconnects.
func (e *Engine) keeping(tenant runtime.TenantID, bytes int64, start func() (runtime.Execution, error)) (runtime.Execution, error) {
	kept, err := e.memory.Keep(tenant, bytes, "a run with an idempotencyKey")
	if err != nil {
		return runtime.Execution{}, err
	}
	defer kept.Free()
	return start()
}

// A preparedRun is a checked RunInput.
type preparedRun struct {
	start     StartInput
	execution runtime.Execution
	claim     pool.Claim
}

// prepareRun validates all of a run's input before anything is claimed or stored.
func (e *Engine) prepareRun(in RunInput) (p preparedRun, err error) {
	p.start = StartInput{Command: in.Command, Shell: in.Shell, CommandLine: in.CommandLine, Labels: in.Labels, Variables: in.Variables, WorkingDirectory: in.WorkingDirectory, TimeLimit: in.TimeLimit, Lease: in.Lease, Stdin: in.Stdin != nil, Key: in.Key, input: in.Stdin}
	if p.execution, err = p.start.execution(); err != nil {
		return p, err
	}
	if err := files.ValidateUpdate("files", files.Update{Write: in.Files}); err != nil {
		return p, err
	}
	p.claim, err = ClaimInput{EnvironmentID: in.EnvironmentID, Tenant: in.Tenant, WaitFor: in.WaitFor, Key: in.Key, Labels: in.Labels, Caller: in.Caller}.claim()
	p.claim.Claim.InactivityTimeout = spare // renewed while the execution runs
	return p, err
}

// claimAndStart does the work of Execute for a key that wasn't used before.
func (e *Engine) claimAndStart(ctx context.Context, in RunInput, claim pool.Claim, start StartInput, x runtime.Execution) (runtime.Execution, error) {
	if x.Batch == nil {
		if err := e.holdings.room(claim.Claim.Tenant); err != nil {
			return runtime.Execution{}, err
		}
	}
	runner, err := e.claimIn(ctx, in.EnvironmentID, claim)
	if err != nil {
		return runtime.Execution{}, err
	}
	x.RunnerID = runner.ID
	x, err = e.fillAndStart(ctx, in, start, x)
	if err != nil {
		e.releaseLater(runner.ID)
		return runtime.Execution{}, err
	}
	return x, nil
}

// fillAndStart writes the files, starts the command, and starts feeding its stdin.
func (e *Engine) fillAndStart(ctx context.Context, in RunInput, start StartInput, x runtime.Execution) (runtime.Execution, error) {
	if err := e.fill(ctx, x.RunnerID, in.Files, in.Protected); err != nil {
		return x, err
	}
	x, err := e.start(ctx, start, x)
	if err != nil || in.Stdin == nil {
		return x, err
	}
	if s := e.sessions.get(x.ID); s != nil {
		return x, e.feedInput(s)
	}
	return x, nil // it has ended
}

// fill writes all files, or returns why one could not be written.
func (e *Engine) fill(ctx context.Context, id runtime.RunnerID, write []runtime.FileWrite, protected bool) error {
	if len(write) == 0 {
		return nil
	}
	updated, err := e.UpdateFiles(ctx, id, "files", files.Update{Write: write, Protected: protected})
	if err == nil && len(updated.Failed) > 0 {
		err = runtime.Errorf(runtime.CodeStorageFull, "%s: %s", updated.Failed[0].Path, updated.Failed[0].Message)
	}
	return err
}

// feedInput feeds a session's stdin with what this server has for it, if anything.
func (e *Engine) feedInput(s *session.Session) error {
	data, offset, ok := s.Input()
	if !ok {
		return nil
	}
	return e.feedLater(s.Execution().ID, data, offset, s.Fed)
}

// feedLater writes data to a command's stdin from an offset on and closes it, in a goroutine that
// Run waits for. It calls fed once the agent has all.
func (e *Engine) feedLater(id runtime.ExecutionID, data []byte, offset int64, fed func()) error {
	return e.jobs.add(func(ctx context.Context) {
		feed := StdinInput{ExecutionID: id, Data: data, Offset: &offset, Close: true}
		for {
			// LIMIT_EXCEEDED means that the program doesn't read yet. The offset makes a retry
			// safe.
			_, err := e.WriteStdin(ctx, feed)
			if err == nil {
				fed()
			}
			if runtime.CodeOf(err) != runtime.CodeLimitExceeded {
				return // everything is written, or the command has ended
			}
		}
	})
}

// releaseLater releases an unused runner in a goroutine that Run waits for.
func (e *Engine) releaseLater(id runtime.RunnerID) {
	err := e.jobs.add(func(ctx context.Context) {
		if _, err := e.Release(ctx, id); err != nil {
			e.logger.Warn("runner could not be released; its inactivity timeout will end it", zap.String("runner", string(id)), zap.Error(err))
		}
	})
	if err != nil {
		e.logger.Warn("runner was not released because the server is stopping; its inactivity timeout will end it", zap.String("runner", string(id)), zap.Error(err))
	}
}
