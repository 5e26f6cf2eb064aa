package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/batch"
	"github.com/rockpool/rockpool/runtime/environments"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/request"
)

// caseWait is how long a case with a fresh runner waits for it at least. The case before it used
// the idle runner, so a new one may have to start.
const caseWait = time.Minute

// freshAttempts bounds the runners that one case claims. A claimed runner may be gone before the
// case begins there, for example because it expired while the server was down.
const freshAttempts = 3

// useForBatch marks a batch's runner as used, if it has one, until done is called.
func (e *Engine) useForBatch(ctx context.Context, b runtime.Batch) (env runtime.Environment, done func(), err error) {
	if b.FreshRunners() {
		env, ok := e.environmentRegistry.Get(b.EnvironmentID)
		if !ok {
			return env, nil, environments.NotFound(b.EnvironmentID)
		}
		return env, func() {}, nil
	}
	p, err := e.poolOf(b.RunnerID)
	if err != nil {
		return env, nil, err
	}
	runner, err := p.Use(ctx, b.RunnerID)
	return runner.Environment, func() { p.Done(ctx, b.RunnerID) }, err
}

// batchEnded implements batch.Host.Ended.
func (e *Engine) batchEnded(c *batch.Coordinator) {
	b := c.Batch()
	e.inputs.Release(b.Tenant, b.InputBytes)
	e.usage.End(b.Tenant)
	e.leases.end(string(b.ID))
	if !b.FreshRunners() {
		if p, err := e.poolOf(b.RunnerID); err == nil {
			p.Done(context.Background(), b.RunnerID)
		}
	}
	e.batchTable.remove(b) // only now callers see its end
	if b.Release && !b.FreshRunners() {
		e.releaseLater(b.RunnerID)
	}
}

// unusedKey returns CONFLICT if an execution has the batch's key, and BATCH_NOT_FOUND if retention
// removed the batch with that key.
func (e *Engine) unusedKey(ctx context.Context, b runtime.Batch) error {
	if _, found, err := e.store.ExecutionByKey(ctx, b.Key); err != nil || found {
		return cmp.Or(err, request.KeyConflict())
	}
	spent, found, err := e.store.SpentKey(ctx, b.Key, e.clock.Now())
	switch {
	case err != nil || !found:
		return err
	case spent.Input != b.Input:
		return request.KeyConflict()
	}
	if _, found, err := e.store.BatchByKey(ctx, b.Key); err != nil || found || b.Release {
		return err // the batch is stored, or the key belongs to the claim of its runner
	}
	return runtime.Errorf(runtime.CodeBatchNotFound, "the batch with this idempotencyKey has been removed by retention; use a new key to run it again")
}

// repeatedBatch returns the first execution of the batch that used this key before.
func (e *Engine) repeatedBatch(ctx context.Context, stored, b runtime.Batch, err error) (runtime.Execution, error) {
	switch {
	case err != nil:
		return runtime.Execution{}, err
	case stored.Input != b.Input:
		return runtime.Execution{}, request.KeyConflict()
	}
	c := e.batchTable.get(stored.ID)
	for c != nil { // its first execution may be starting now
		state, changed := c.State()
		if len(state.Executions) > 0 || state.Batch.State == runtime.BatchFinished {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return runtime.Execution{}, context.Cause(ctx)
		}
	}
	x, found, err := e.store.ExecutionByKey(ctx, request.CaseKey(stored.ID, stored.First()))
	if err == nil && !found {
		err = runtime.Errorf(runtime.CodeBatchNotFound, "the first execution of the batch with this idempotencyKey doesn't exist, or retention removed it")
	}
	return x, err
}

// beginCase implements batch.Host.Begin.
func (e *Engine) beginCase(ctx context.Context, b runtime.Batch, caller string, number int, cancelled <-chan struct{}) (runtime.Execution, error) {
	step, shared, err := e.readStep(ctx, b.ID, number)
	if err != nil {
		return runtime.Execution{}, err
	}
	in := request.ForCase(b, shared, step)
	x, err := in.Execution()
	if err != nil {
		return x, err
	}
	x.Key, x.Input, x.Release = request.CaseKey(b.ID, number), string(b.ID), b.FreshRunners()
	x.Batch, x.Comparison = &runtime.BatchPosition{ID: b.ID, Case: number}, step.Comparison
	if b.FreshRunners() {
		x, err = e.startFresh(ctx, b, caller, shared, in, x, cancelled)
	} else {
		x, err = e.start(ctx, in, x)
	}
	// The execution may be one that an earlier server began, and may have ended.
	if err == nil && in.Stdin && x.State != runtime.ExecutionFinished {
		err = e.feedLater(x.ID, step.Stdin, 0, func() {})
	}
	return x, err
}

func (e *Engine) readStep(ctx context.Context, id runtime.BatchID, number int) (step batch.Step, shared batch.Shared, err error) {
	rawStep, rawShared, err := e.store.BatchStep(ctx, id, number)
	if err != nil {
		return step, shared, err
	}
	if err = errors.Join(json.Unmarshal(rawStep, &step), json.Unmarshal(rawShared, &shared)); err != nil {
		err = fmt.Errorf("read case %d of batch %s: %w", number, id, err)
	}
	return step, shared, err
}

// startFresh claims a runner for a case and starts it there. Closing cancelled interrupts the wait.
func (e *Engine) startFresh(ctx context.Context, b runtime.Batch, caller string, shared batch.Shared, in request.Start, x runtime.Execution, cancelled <-chan struct{}) (runtime.Execution, error) {
	// An earlier server may have started this case.
	if stored, found, err := e.store.ExecutionByKey(ctx, x.Key); err != nil || found {
		return stored, err
	}
	claim, err := request.Claim{Tenant: b.Tenant, WaitFor: shared.WaitFor, Labels: shared.Labels, Caller: caller}.ParsePart()
	if err != nil {
		return x, err
	}
	claim.Claim.InactivityTimeout, claim.Claim.Key, claim.Claim.Input = request.RunLease, x.Key, x.Input
	if x.Batch.Case != b.First() {
		claim.WaitFor = max(claim.WaitFor, caseWait)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var watching sync.WaitGroup
	defer watching.Wait()
	claimed := make(chan struct{})
	defer close(claimed)
	watching.Go(func() {
		select {
		case <-cancelled:
			cancel()
		case <-claimed:
		}
	})
	var begun runtime.Execution
	for attempt := range freshAttempts {
		if attempt > 0 { // the previous runner was gone before the case began
			claim.Claim.Key = fmt.Sprintf("%s/%d", x.Key, attempt)
		}
		begun, err = e.claimAndStart(ctx, request.Run{EnvironmentID: b.EnvironmentID, Files: shared.Files, Protected: shared.Protected}, claim, in, x)
		if runtime.CodeOf(err) != runtime.CodeRunnerGone {
			break
		}
	}
	return begun, err
}

// awaitCase implements batch.Host.Await.
func (e *Engine) awaitCase(ctx context.Context, id runtime.ExecutionID, cancelled <-chan struct{}) (runtime.Execution, error) {
	s, x, err := e.sessions.Find(ctx, id)
	if s == nil || err != nil {
		return x, err
	}
	select {
	case <-s.Done():
		return s.Execution(), nil
	case <-cancelled:
		s.Kill(ctx, runtime.OutcomeCancelled)
	case <-ctx.Done():
	}
	// Kill waits only until the reason is stored. The end comes later.
	select {
	case <-s.Done():
		return s.Execution(), nil
	case <-ctx.Done():
		return x, context.Cause(ctx)
	}
}

// endsOfCases returns the executions of a batch by case number, each with only what Recall needs: 1,000
// cases may have commands of 1 MiB.
func (e *Engine) endsOfCases(ctx context.Context, b runtime.Batch) (map[int]runtime.Execution, error) {
	known := map[int]runtime.Execution{}
	for from := runtime.BuildCase; from < b.CaseCount; { // each page has a part of them
		page, until, err := e.store.BatchExecutions(ctx, b, from, b.CaseCount)
		if err != nil {
			return nil, err
		}
		for number, x := range page {
			known[number] = runtime.Execution{ID: x.ID, State: x.State, End: x.End, Comparison: x.Comparison}
		}
		from = until
	}
	return known, nil
}

// recallBatches returns coordinators for the unfinished batches that an earlier server left.
func (e *Engine) recallBatches(ctx context.Context) ([]*batch.Coordinator, error) {
	left, err := e.store.UnfinishedBatches(ctx)
	if err != nil {
		return nil, err
	}
	var recalled []*batch.Coordinator
	for _, u := range left {
		known, err := e.endsOfCases(ctx, u.Batch)
		if err != nil {
			return nil, err
		}
		u.Batch.QueuedAt = e.clock.Anchor(u.Batch.QueuedAt)
		c := e.batchHost.New(u.Batch, "")
		c.Recall(known)
		if u.Cancelled {
			c.Cancel(wasCancelled)
		}
		_ = e.batchTable.add(c, e.memory.Adopt(u.Batch.Tenant, batchBytes+2*u.Bytes), true) // never fails
		e.leaseBatch(u.Batch)
		e.inputs.Adopt(u.Batch.Tenant, u.Batch.InputBytes)
		// A batch counts as one execution.
		e.usage.Quotas.Of(u.Batch.Tenant).Adopt(quota.Executions, 1)
		recalled = append(recalled, c)
	}
	return recalled, nil
}
