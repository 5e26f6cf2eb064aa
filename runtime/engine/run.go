package engine

import (
	"cmp"
	"context"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/files"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/session"
)

// Run does everything in one call: it claims a runner for the caller's tenant, writes files, stores the
// execution, starts the command, and feeds its stdin. It returns the execution PENDING once it is
// stored; the command starts in the background, as with Start. The runner is released when the
// execution ends. All input is checked before the claim. It is idempotent by key: the same key returns
// the same execution, also concurrently, or CONFLICT if the input differs.
func (s *Executions) Run(ctx context.Context, in request.Run) (started runtime.Execution, err error) {
	e := s.e
	err = e.running(ctx, in, audit.OfExecution, func(in request.Run) (id string, err error) {
		start, x, claim, err := in.Parse()
		if err != nil {
			return "", err
		}
		x.Release = true
		if in.Key != "" {
			x.Key, x.Input = in.Idempotency(nil)
			claim.Claim.Key, claim.Claim.Input = x.Key, x.Input
		}
		before := func(ctx context.Context) (runtime.Execution, bool, error) {
			stored, found, err := e.store.ExecutionByKey(ctx, x.Key)
			if found {
				stored, err = e.repeated(stored, x, err)
			}
			return stored, found, err
		}
		started, err = e.runOnce(ctx, in, nil, x.Key, x.Input, before, func(ctx context.Context) (runtime.Execution, error) {
			if err := e.usage.Room(in.Tenant); err != nil {
				return runtime.Execution{}, err
			}
			return e.claimAndStart(ctx, in, claim, start, x)
		})
		return string(started.ID), err
	})
	return started, err
}

// Run is like Executions.Run, for a batch. It claims and releases one runner for the batch, or one for
// each case, and writes the files to each runner.
func (s *Batches) Run(ctx context.Context, in request.Run, of request.Batch) (b runtime.Batch, first runtime.Execution, err error) {
	e := s.e
	err = e.running(ctx, in, audit.OfBatch, func(in request.Run) (id string, err error) {
		start, _, claim, err := in.Parse()
		if err != nil {
			return "", err
		}
		if in.Stdin != nil {
			return "", request.OwnStdin()
		}
		made := runtime.Batch{ID: runtime.NewBatchID(), EnvironmentID: in.EnvironmentID, Tenant: in.Tenant, Release: !of.FreshRunners}
		shared, steps, err := of.Plan(&made, start)
		if err != nil {
			return "", err
		}
		shared.WorkingDirectory = cmp.Or(shared.WorkingDirectory, runtime.Workspace) // where its files are
		if in.Key != "" {
			made.Key, made.Input = in.Idempotency(&of)
			claim.Claim.Key, claim.Claim.Input = made.Key, made.Input
		}
		before := func(ctx context.Context) (runtime.Execution, bool, error) {
			stored, found, err := e.store.BatchByKey(ctx, made.Key)
			if !found {
				return runtime.Execution{}, false, err
			}
			x, err := e.repeatedBatch(ctx, stored, made, err)
			return x, true, err
		}
		whole := func(ctx context.Context) (runtime.Execution, error) {
			if err := e.usage.Room(in.Tenant); err != nil {
				return runtime.Execution{}, err
			}
			return e.claimAnd(ctx, in, claim, func(runner runtime.RunnerID) (runtime.Execution, error) {
				b := made
				b.RunnerID = runner
				return e.startBatch(ctx, b, in.Caller, shared, steps)
			})
		}
		if of.FreshRunners { // each case claims its own runner, so the batch claims none
			shared.Files, shared.Protected, shared.WaitFor = in.Files, in.Protected, in.WaitFor
			whole = func(ctx context.Context) (runtime.Execution, error) {
				return e.startBatch(ctx, made, in.Caller, shared, steps)
			}
		}
		first, err = e.runOnce(ctx, in, of.Cases, made.Key, made.Input, before, whole)
		if err == nil {
			b, err = e.findBatch(ctx, first.Batch.ID)
		}
		return string(b.ID), err
	})
	return b, first, err
}

// running authorises, acts and records for a caller that runs something: it calls run with the caller's
// tenant, environment and scope of keys.
func (e *Engine) running(ctx context.Context, in request.Run, kind string, run func(in request.Run) (id string, err error)) error {
	made := audit.NewMade(kind, "")
	return e.auth.Make(ctx, "run", made, func(p access.Principal) (err error) {
		asked := in.EnvironmentID
		in.Tenant, in.EnvironmentID = e.claimant(p, asked)
		in.Keys = p.Keys()
		if made.ID, err = run(in); err == nil {
			made.Tenant = in.Tenant
		}
		return noEnvironment(err, asked, in.EnvironmentID)
	})
}

// runOnce calls whole. With a key, only the first call does so; others get its result, and it continues
// when its caller disconnects. before returns what an earlier call stored.
func (e *Engine) runOnce(ctx context.Context, in request.Run, cases []request.Case, key, input string, before func(context.Context) (runtime.Execution, bool, error), whole func(context.Context) (runtime.Execution, error)) (runtime.Execution, error) {
	if in.Key == "" {
		return whole(ctx)
	}
	x, _, err := e.runs.Do(ctx, key, input, e.jobs.Add, func(ctx context.Context) (runtime.Execution, error) {
		if x, found, err := before(ctx); err != nil || found {
			return x, err
		}
		kept, err := e.memory.Keep(in.Tenant, in.Bytes(cases), "a run with an idempotencyKey")
		if err != nil {
			return runtime.Execution{}, err
		}
		defer kept.Free()
		return whole(ctx)
	})
	return x, keyError(err)
}

// claimAnd claims a runner, writes the run's files into it, and calls start. If a later step fails, the
// runner is released.
func (e *Engine) claimAnd(ctx context.Context, in request.Run, claim pool.Claim, start func(runtime.RunnerID) (runtime.Execution, error)) (runtime.Execution, error) {
	runner, _, err := e.claimBy(ctx, e.jobs.Add, in.EnvironmentID, claim)
	if err != nil {
		return runtime.Execution{}, err
	}
	var x runtime.Execution
	if err = e.fill(ctx, runner.ID, in.Files, in.Protected); err == nil {
		x, err = start(runner.ID)
	}
	if err != nil {
		e.releaseLater(runner.ID)
		return runtime.Execution{}, err
	}
	return x, nil
}

func (e *Engine) claimAndStart(ctx context.Context, in request.Run, claim pool.Claim, start request.Start, x runtime.Execution) (runtime.Execution, error) {
	return e.claimAnd(ctx, in, claim, func(runner runtime.RunnerID) (runtime.Execution, error) {
		x := x
		x.RunnerID = runner
		x, err := e.start(ctx, start, x)
		if err != nil || in.Stdin == nil {
			return x, err
		}
		if s := e.sessions.Session(x.ID); s != nil {
			return x, e.feedInput(s)
		}
		return x, nil // it has ended
	})
}

// fill writes all files, or returns why one could not be written.
func (e *Engine) fill(ctx context.Context, id runtime.RunnerID, write []runtime.FileWrite, protected bool) error {
	if len(write) == 0 {
		return nil
	}
	updated, err := e.fileAccess.UpdateFiles(ctx, id, "files", files.Update{Write: write, Protected: protected})
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
	return e.jobs.Add(func(ctx context.Context) {
		feed := request.Stdin{ExecutionID: id, Data: data, Offset: &offset, Close: true}
		for {
			// LIMIT_EXCEEDED means that the program doesn't read yet. The offset makes a retry
			// safe.
			_, err := e.sessions.WriteStdin(ctx, feed)
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
	if err := e.jobs.Add(func(ctx context.Context) { e.releaseUnused(ctx, id) }); err != nil {
		e.logger.Warn("runner was not released because the server is stopping; its inactivity timeout will end it", zap.String("runner", string(id)), zap.Error(err))
	}
}

// releaseUnused releases an unused runner. It logs an error unless ctx has ended.
func (e *Engine) releaseUnused(ctx context.Context, id runtime.RunnerID) {
	if _, err := e.release(ctx, id); err != nil && ctx.Err() == nil {
		e.logger.Warn("runner could not be released; its inactivity timeout will end it", zap.String("runner", string(id)), zap.Error(err))
	}
}
