package engine

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
)

// spare is how much longer than its time limit a runner claimed by Execute may
// stay, where nobody is left to release it.
const spare = time.Minute

// Execute is the whole in one call: it claims a runner, writes files, starts
// and feeds the command, and returns at once; the runner is released when the
// execution ends. Everything is checked before the claim. The same key gives
// the same execution; with another input CONFLICT.
func (e *Engine) Execute(ctx context.Context, in RunInput) (runtime.Execution, error) {
	start := StartInput{Command: in.Command, Shell: in.Shell, Variables: in.Variables, TimeLimit: in.TimeLimit, Stdin: in.Stdin != nil, Key: in.Key}
	x, err := start.execution()
	if err != nil {
		return runtime.Execution{}, err
	}
	if err := validateUpdate("files.", nil, in.Files); err != nil {
		return runtime.Execution{}, err
	}
	claim, err := ClaimInput{EnvironmentID: in.EnvironmentID, WaitFor: in.WaitFor, Key: in.Key}.claim()
	if err != nil {
		return runtime.Execution{}, err
	}
	asked := in
	asked.Key, asked.WaitFor = "", nil
	x.Input, x.Release = digest(asked), true
	if in.Key != "" {
		x.Key = "run/" + in.Key
		if stored, found, err := e.store.ExecutionByKey(ctx, x.Key); err != nil || found {
			return e.repeated(stored, x, err)
		}
		claim.Claim.Key, claim.Claim.Input = x.Key, x.Input
	}
	p, err := e.pool(in.EnvironmentID)
	if err != nil {
		return runtime.Execution{}, err
	}
	runner, err := e.claimFor(ctx, p, claim)
	if err != nil {
		return runtime.Execution{}, err
	}
	x.RunnerID = runner.ID
	x, err = e.fillAndStart(ctx, in, start, x)
	if err != nil {
		e.releaseLater(p, runner.ID)
		return runtime.Execution{}, err
	}
	return x, nil
}

func (e *Engine) claimFor(ctx context.Context, p *pool.Pool, claim pool.Claim) (runtime.Runner, error) {
	claim.Claim.InactivityTimeout = spare // renewed as long as it runs
	if claim.Claim.Key == "" {
		return p.Claim(ctx, claim)
	}
	return e.claimOnce(ctx, p, claim)
}

// fillAndStart writes the files, starts the command and has its stdin fed.
func (e *Engine) fillAndStart(ctx context.Context, in RunInput, start StartInput, x runtime.Execution) (runtime.Execution, error) {
	if len(in.Files) > 0 {
		updated, err := e.UpdateFiles(ctx, x.RunnerID, nil, in.Files)
		if err != nil {
			return x, inFiles(err)
		}
		if len(updated.Failed) > 0 {
			return x, runtime.Errorf(runtime.CodeStorageFull, "%s: %s", updated.Failed[0].Path, updated.Failed[0].Message)
		}
	}
	x, err := e.start(ctx, start, x)
	if err != nil || in.Stdin == nil {
		return x, err
	}
	var none int64
	feed := StdinInput{ExecutionID: x.ID, Data: []byte(*in.Stdin), Offset: &none, Close: true}
	return x, e.background(func(ctx context.Context) {
		for {
			_, err := e.WriteStdin(ctx, feed)
			if runtime.CodeOf(err) != runtime.CodeLimitExceeded {
				return // it has all, or has ended
			}
		}
	})
}

// inFiles names the field as RunInput has it.
func inFiles(err error) error {
	var invalid *runtime.Error
	if errors.As(err, &invalid) {
		if rest, ok := strings.CutPrefix(invalid.Field, "write."); ok {
			renamed := *invalid
			renamed.Field = "files." + rest
			return &renamed
		}
	}
	return err
}

// releaseLater releases a runner that nobody will use.
func (e *Engine) releaseLater(p *pool.Pool, id runtime.RunnerID) {
	err := e.background(func(ctx context.Context) {
		if _, err := p.Release(ctx, id); err != nil {
			e.logger.Warn("a runner could not be released", zap.String("runner", string(id)), zap.Error(err))
		}
	})
	if err != nil {
		e.logger.Warn("a runner was left to its inactivity timeout", zap.String("runner", string(id)), zap.Error(err))
	}
}
