package engine

import (
	"context"
	"slices"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/executions"
	"github.com/rockpool/rockpool/runtime/output"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/session"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/runtime/usage"
)

// Executions serves executions to callers; see [executions.Service].
type Executions struct {
	*executions.Service
	e *Engine
}

// Start records an execution in a runner that the caller sees, starts it in the background, and returns
// it PENDING. Later errors become the execution's outcome. It is idempotent by key: the same key
// returns the same execution, or CONFLICT if the input differs.
func (s *Executions) Start(ctx context.Context, in request.Start) (started runtime.Execution, err error) {
	err = s.e.starting(ctx, in, audit.OfExecution, func(in request.Start) (id string, err error) {
		x, err := in.Execution()
		if err != nil {
			return "", err
		}
		if in.Key != "" {
			x.Key = request.ScopedKey(in.Keys, "start/"+in.Key)
		}
		started, err = s.e.start(ctx, in, x)
		return string(started.ID), err
	})
	return started, err
}

// starting authorises, acts and records for a caller that starts something in a runner: it calls start
// with the runner's tenant and the caller's scope of keys. It replaces a runner that the caller doesn't
// see by an id that never existed. That id is refused like one of a runner that is gone, but only after
// start has checked whether the key was used before.
func (e *Engine) starting(ctx context.Context, in request.Start, kind string, start func(in request.Start) (id string, err error)) error {
	made := audit.NewMade(kind, "")
	return e.auth.Make(ctx, "startExecution", made, func(p access.Principal) (err error) {
		if p.Grant != nil && in.Privileged {
			return runtime.Errorf(runtime.CodeForbidden, "a grant can't start privileged executions")
		}
		asked := in.RunnerID
		in.Tenant, in.Keys = p.Tenant, p.Keys()
		r, ok := e.runnerIndex.get(asked)
		switch {
		case ok && !p.SeesRunner(r), !ok && p.Grant != nil && p.Grant.Runner != asked:
			in.RunnerID = runtime.NewRunnerID()
		case ok:
			in.Tenant = r.Tenant()
		}
		if made.ID, err = start(in); err == nil {
			made.Tenant = in.Tenant
		} else if in.RunnerID != asked && runtime.CodeOf(err) == runtime.CodeRunnerGone {
			return runtime.Gone(asked)
		}
		return err
	})
}

// start stores an execution and runs it in a session. A retry with the same key returns the stored
// execution. In order, it counts a use of the runner, counts the execution against the tenant's
// quota, and stores it; each failure undoes the steps before. Once the execution is stored, it runs
// even if this server stops: the next one starts it.
func (e *Engine) start(ctx context.Context, in request.Start, x runtime.Execution) (runtime.Execution, error) {
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
	var taken undo
	defer taken.run()
	taken.add(func() { p.Done(ctx, x.RunnerID) })
	if err := e.complete(&x, in, runner); err != nil {
		return runtime.Execution{}, err
	}
	if x.Batch == nil {
		if err := e.usage.Begin(x.Tenant); err != nil {
			return runtime.Execution{}, err
		}
		taken.add(func() { e.usage.End(x.Tenant) })
	}
	x.Timestamps.QueuedAt = e.clock.Now()
	begin := e.begin(ctx, in, x, runner.Environment)
	encoded := begin.Encode()
	begin.Encoded = int64(len(encoded))
	input := usage.InputOf(x, begin.Encoded)
	var kept *quota.Kept
	if x.Batch != nil { // a batch that has begun isn't refused, and has the memory for all of its executions
		e.inputs.Adopt(x.Tenant, input)
	} else {
		startBytes, inputBytes := begin.Bytes()
		if kept, err = e.memory.Keep(x.Tenant, bytesOfExecution(x)+startBytes+inputBytes, "an execution"); err != nil {
			return runtime.Execution{}, err
		}
		taken.add(kept.Free)
		if err := e.inputs.Add(ctx, x.Tenant, input); err != nil {
			return runtime.Execution{}, err
		}
	}
	taken.add(func() { e.inputs.Release(x.Tenant, input) })
	stored, added, err := e.store.AddExecution(ctx, x, encoded)
	if err != nil || !added {
		taken.run()
		return e.repeated(stored, x, err)
	}
	taken.keep()
	s := e.host.New(runner, x, begin, output.New(e.logs.Location(x.ID)))
	s.Keep(kept)
	e.sessions.Add(s)
	e.leaseExecution(x)
	e.counts.Started.Add(1)
	if err := e.jobs.Add(func(ctx context.Context) { s.Run(ctx, p) }); err != nil {
		return runtime.Execution{}, err // it is recorded, so the next server starts it
	}
	if r, ok := e.runnerIndex.get(runner.ID); !ok || r.State != runtime.RunnerClaimed {
		s.RunnerGone(r.GoneReason) // the runner was gone before observe could find the session
	}
	return x, nil
}

// executionBytes is the memory of an unfinished execution in addition to its texts: its goroutines,
// stream and log. A test in test/e2e/api shows that a server survives as many as it admits.
const executionBytes = 48 << 10

// bytesOfExecution returns what an execution keeps until it has ended, in addition to
// [session.Session.Bytes].
func bytesOfExecution(x runtime.Execution) int64 {
	return executionBytes + quota.BytesOf(x.Command...) + quota.BytesOf(x.Line) + quota.BytesOfLabels(x.Labels)
}

// complete adds what the runner and its environment say about an execution.
func (e *Engine) complete(x *runtime.Execution, in request.Start, runner runtime.Runner) (err error) {
	env := runner.Environment
	x.EnvironmentID, x.Tenant = env.ID, runner.Tenant()
	if x.Labels, err = runtime.WithLabels(runner.Claim.Labels, in.Labels); err != nil {
		return err
	}
	if in.TimeLimit == nil {
		x.TimeLimit = env.DefaultTimeLimit
	}
	x.OutputLimit = env.OutputLimit
	if in.OutputLimit == nil {
		return nil
	}
	x.OutputLimit = *in.OutputLimit
	return runtime.Between("limits.outputBytes", x.OutputLimit, runtime.MinOutputLimit, env.OutputLimit, "bytes (the environment's outputLimit)")
}

func (e *Engine) begin(ctx context.Context, in request.Start, x runtime.Execution, env runtime.Environment) session.Begin {
	begin := session.Begin{Queued: e.boot.Moment(x.Timestamps.QueuedAt), Dir: in.WorkingDirectory, Input: in.Input, Fed: x.Batch != nil}
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
	return begin
}

// repeated returns the execution that used this key before.
func (e *Engine) repeated(stored, x runtime.Execution, err error) (runtime.Execution, error) {
	if err != nil {
		return runtime.Execution{}, err
	}
	if stored.Input != x.Input {
		return runtime.Execution{}, request.KeyConflict()
	}
	if s := e.sessions.Session(stored.ID); s != nil {
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
		return request.KeyConflict()
	default:
		return runtime.Errorf(runtime.CodeExecutionNotFound, "the execution with this idempotencyKey has been removed by retention; use a new key to run it again")
	}
}

// An undo has the steps that a failure undoes, the last one first.
type undo []func()

func (u *undo) add(step func()) { *u = append(*u, step) }

// run undoes the steps, once.
func (u *undo) run() {
	for _, step := range slices.Backward(*u) {
		step()
	}
	*u = nil
}

// keep makes run do nothing.
func (u *undo) keep() { *u = nil }

// ended implements session.Host.Ended.
func (e *Engine) ended(s *session.Session, x runtime.Execution) {
	e.counts.Finished(x.End.Outcome)
	e.failures.Ended(e.clock.Now(), x)
	e.usage.Ended(x)
	e.leases.end(string(x.ID))
	e.inputs.Release(x.Tenant, usage.InputOf(x, s.Stored()))
	e.sessions.Remove(s) // from here on, callers read the stored execution
}

// leaseExecution cancels an execution when its lease ends.
func (e *Engine) leaseExecution(x runtime.Execution) {
	e.leases.grant(string(x.ID), x.Lease, func() {
		// A server that stops leaves the execution to the next one.
		_ = e.jobs.Add(func(ctx context.Context) {
			if s := e.sessions.Session(x.ID); s != nil {
				s.Lapse(ctx)
			}
		})
	})
}

// RenewLease restarts the lease of an execution or batch that the caller sees. It reports false if that
// has ended or has no lease.
func (s *Executions) RenewLease(ctx context.Context, id string) (bool, error) {
	err := s.e.auth.See(ctx, "renewLease", s.e.batch(ctx, runtime.BatchID(id)))
	if runtime.CodeOf(err) == runtime.CodeBatchNotFound {
		err = s.e.auth.See(ctx, "renewLease", s.e.sessions.Object(ctx, runtime.ExecutionID(id)))
	}
	return err == nil && s.e.leases.renew(id), err
}
