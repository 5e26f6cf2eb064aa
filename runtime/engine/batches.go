package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/batch"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/store"
)

// caseWait is how long a case with a fresh runner waits for it at least. The case before it used
// the idle runner, so a new one may have to start.
const caseWait = time.Minute

// freshAttempts bounds the runners that one case claims. A claimed runner may be gone before the
// case begins there, for example because it expired while the server was down.
const freshAttempts = 3

// batches holds the batches that haven't ended.
type batches struct {
	host batch.Host

	mu     sync.Mutex // guards the fields below
	byID   map[runtime.BatchID]ledBatch
	shares quota.Bound
}

// A ledBatch is an unfinished batch with its memory.
type ledBatch struct {
	leader *batch.Leader
	kept   *quota.Kept
}

func newBatches() *batches {
	return &batches{byID: map[runtime.BatchID]ledBatch{}, shares: quota.Bound{Limit: maxBatches, Quota: "batches", Of: "running batches"}}
}

// add registers a leader with the batch's memory. It returns QUOTA_EXCEEDED if the tenant has its share
// of running batches.
func (all *batches) add(l *batch.Leader, kept *quota.Kept) error {
	b := l.Batch()
	all.mu.Lock()
	defer all.mu.Unlock()
	if err := all.shares.Acquire(b.Tenant); err != nil {
		return err
	}
	all.byID[b.ID] = ledBatch{l, kept}
	return nil
}

// adopt registers the leader of a batch that an earlier server left, whatever the tenant's share.
func (all *batches) adopt(l *batch.Leader, kept *quota.Kept) {
	b := l.Batch()
	all.mu.Lock()
	defer all.mu.Unlock()
	all.shares.Adopt(b.Tenant)
	all.byID[b.ID] = ledBatch{l, kept}
}

// remove unregisters a batch that add or adopt registered.
func (all *batches) remove(b runtime.Batch) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.shares.Release(b.Tenant)
	all.byID[b.ID].kept.Free()
	delete(all.byID, b.ID)
}

func (all *batches) len() int {
	all.mu.Lock()
	defer all.mu.Unlock()
	return len(all.byID)
}

// get returns the leader of an unfinished batch, or nil.
func (all *batches) get(id runtime.BatchID) *batch.Leader {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.byID[id].leader
}

// StartBatch records a batch in a claimed runner, starts its first execution, and returns both.
// It is idempotent by key: the same key returns the same batch, or CONFLICT if the input differs.
func (e *Engine) StartBatch(ctx context.Context, in StartInput, of BatchInput) (runtime.Batch, runtime.Execution, error) {
	request := in
	request.Key = ""
	b := runtime.Batch{ID: runtime.NewBatchID(), RunnerID: in.RunnerID, Tenant: in.Tenant, Input: digest([]any{request, of})}
	if in.Key != "" {
		b.Key = keyOf(in.Keys, "start/"+in.Key)
	}
	if of.FreshRunners {
		return b, runtime.Execution{}, runtime.Invalid("freshRunners", "only run can give each case a runner of its own")
	}
	shared, steps, err := of.plan(&b, in)
	if err != nil {
		return b, runtime.Execution{}, err
	}
	x, err := e.startBatch(ctx, b, "", shared, steps)
	return e.started(ctx, x, err)
}

// started returns the batch that x is the first execution of.
func (e *Engine) started(ctx context.Context, x runtime.Execution, err error) (runtime.Batch, runtime.Execution, error) {
	if err != nil {
		return runtime.Batch{}, runtime.Execution{}, err
	}
	b, err := e.Batch(ctx, x.Batch.ID)
	return b, x, err
}

// startBatch records a batch, begins its first execution, and starts the batch's leader, which Run
// waits for. The batch uses its runner until it ends.
func (e *Engine) startBatch(ctx context.Context, b runtime.Batch, caller string, shared batch.Shared, steps []batch.Step) (runtime.Execution, error) {
	if b.Key != "" {
		if err := e.unusedKey(ctx, b); err != nil {
			return runtime.Execution{}, err
		}
		if stored, found, err := e.store.BatchByKey(ctx, b.Key); err != nil || found {
			return e.repeatedBatch(ctx, stored, b, err)
		}
	}
	// From here on, each failure undoes the steps before it.
	env, unused, err := e.useForBatch(ctx, b)
	if err != nil {
		return runtime.Execution{}, err
	}
	if err := e.holdings.begin(b.Tenant); err != nil {
		unused()
		return runtime.Execution{}, err
	}
	done := func() {
		e.inputs.release(b.Tenant, b.InputBytes)
		e.holdings.end(b.Tenant)
		unused()
	}
	b.EnvironmentID, b.State, b.QueuedAt = env.ID, runtime.BatchRunning, e.clock.Now()
	encoded, err := encodeSteps(steps, b, env)
	if err != nil {
		done()
		return runtime.Execution{}, err
	}
	start := batch.Encode(shared)
	size := int64(len(start))
	for _, step := range encoded {
		size += int64(len(step.Value) + len(step.Expected))
	}
	if err := e.inputs.add(ctx, b.Tenant, size); err != nil {
		done()
		return runtime.Execution{}, err
	}
	b.InputBytes = size
	kept, err := e.memory.Keep(b.Tenant, bytesOfBatch(len(start), encoded), "a batch")
	if err != nil {
		done()
		return runtime.Execution{}, err
	}
	// The leader is registered before the batch is stored, so that a retry that finds the batch
	// also finds its leader.
	l := e.batches.host.New(b, caller)
	if err := e.batches.add(l, kept); err != nil {
		kept.Free()
		done()
		return runtime.Execution{}, err
	}
	stored, added, err := e.store.AddBatch(ctx, b, start, encoded)
	if err != nil || !added {
		e.batches.remove(b)
		done()
		return e.repeatedBatch(ctx, stored, b, err)
	}
	x, err := l.Begin(ctx)
	if err != nil {
		e.batches.remove(b)
		done()
		if dropped := e.store.DropBatch(context.WithoutCancel(ctx), b); dropped != nil {
			e.logger.Warn("a batch that could not begin is still stored") // the next server ends it
		}
		return runtime.Execution{}, err
	}
	e.leaseBatch(b)
	return x, e.jobs.add(l.Run) // if it fails, the next server continues the batch
}

// useForBatch marks a batch's runner as used, if it has one, until done is called.
func (e *Engine) useForBatch(ctx context.Context, b runtime.Batch) (env runtime.Environment, done func(), err error) {
	if b.FreshRunners() {
		env, ok := e.Environment(b.EnvironmentID)
		if !ok {
			return env, nil, NoEnvironment(b.EnvironmentID)
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
func (e *Engine) batchEnded(l *batch.Leader) {
	b := l.Batch()
	e.inputs.release(b.Tenant, b.InputBytes)
	e.holdings.end(b.Tenant)
	e.leases.end(string(b.ID))
	if !b.FreshRunners() {
		if p, err := e.poolOf(b.RunnerID); err == nil {
			p.Done(context.Background(), b.RunnerID)
		}
	}
	e.batches.remove(b) // only now callers see its end
	if b.Release && !b.FreshRunners() {
		e.releaseLater(b.RunnerID)
	}
}

// unusedKey returns CONFLICT if an execution has the batch's key, and BATCH_NOT_FOUND if retention
// removed the batch with that key.
func (e *Engine) unusedKey(ctx context.Context, b runtime.Batch) error {
	if _, found, err := e.store.ExecutionByKey(ctx, b.Key); err != nil || found {
		return orConflict(err)
	}
	spent, found, err := e.store.SpentKey(ctx, b.Key, e.clock.Now())
	switch {
	case err != nil || !found:
		return err
	case spent.Input != b.Input:
		return keyConflict()
	}
	if _, found, err := e.store.BatchByKey(ctx, b.Key); err != nil || found || b.Release {
		return err // the batch is stored, or the key belongs to the claim of its runner
	}
	return runtime.Errorf(runtime.CodeBatchNotFound, "the batch with this idempotencyKey has been removed by retention; use a new key to run it again")
}

// orConflict returns err or, if that is nil, CONFLICT for an idempotency key.
func orConflict(err error) error {
	if err != nil {
		return err
	}
	return keyConflict()
}

// repeatedBatch returns the first execution of the batch that used this key before.
func (e *Engine) repeatedBatch(ctx context.Context, stored, b runtime.Batch, err error) (runtime.Execution, error) {
	switch {
	case err != nil:
		return runtime.Execution{}, err
	case stored.Input != b.Input:
		return runtime.Execution{}, keyConflict()
	}
	l := e.batches.get(stored.ID)
	for l != nil { // its first execution may be starting now
		state, changed := l.State()
		if len(state.Executions) > 0 || state.Batch.State == runtime.BatchFinished {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return runtime.Execution{}, context.Cause(ctx)
		}
	}
	x, found, err := e.store.ExecutionByKey(ctx, caseKey(stored.ID, stored.First()))
	if err == nil && !found {
		err = runtime.Errorf(runtime.CodeBatchNotFound, "the first execution of the batch with this idempotencyKey doesn't exist, or retention removed it")
	}
	return x, err
}

// laterCase reports whether caseKey made this key for a case other than a batch's first. Keys of
// callers never have this prefix.
func laterCase(key string) bool {
	return strings.HasPrefix(key, "batch/") && !strings.HasSuffix(key, "/0")
}

// caseKey returns the idempotency key of a batch's execution.
func caseKey(id runtime.BatchID, number int) string {
	if number == runtime.BuildCase {
		return fmt.Sprintf("batch/%s/build", id)
	}
	return fmt.Sprintf("batch/%s/%d", id, number)
}

// beginCase implements batch.Host.Begin.
func (e *Engine) beginCase(ctx context.Context, b runtime.Batch, caller string, number int, cancelled <-chan struct{}) (runtime.Execution, error) {
	step, shared, err := e.readStep(ctx, b.ID, number)
	if err != nil {
		return runtime.Execution{}, err
	}
	in := startCase(b, shared, step)
	x, err := in.execution()
	if err != nil {
		return x, err
	}
	x.Key, x.Input, x.Release = caseKey(b.ID, number), string(b.ID), b.FreshRunners()
	x.Batch, x.Comparison = &runtime.BatchPlace{ID: b.ID, Case: number}, step.Comparison
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

// readStep returns what is stored about one case, and about all cases of its batch.
func (e *Engine) readStep(ctx context.Context, id runtime.BatchID, number int) (step batch.Step, shared batch.Shared, err error) {
	rawStep, rawShared, err := e.store.BatchStep(ctx, id, number)
	if err != nil {
		return step, shared, err
	}
	err = errors.Join(json.Unmarshal(rawStep, &step), json.Unmarshal(rawShared, &shared))
	if err != nil {
		err = fmt.Errorf("read case %d of batch %s: %w", number, id, err)
	}
	return step, shared, err
}

// startFresh claims a runner for a case and starts it there. Closing cancelled interrupts the wait.
func (e *Engine) startFresh(ctx context.Context, b runtime.Batch, caller string, shared batch.Shared, in StartInput, x runtime.Execution, cancelled <-chan struct{}) (runtime.Execution, error) {
	// An earlier server may have started this case.
	if stored, found, err := e.store.ExecutionByKey(ctx, x.Key); err != nil || found {
		return stored, err
	}
	claim, err := ClaimInput{Tenant: b.Tenant, WaitFor: shared.WaitFor, Labels: shared.Labels, Caller: caller}.claim()
	if err != nil {
		return x, err
	}
	claim.Claim.InactivityTimeout, claim.Claim.Key, claim.Claim.Input = spare, x.Key, x.Input
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
		begun, err = e.claimAndStart(ctx, RunInput{EnvironmentID: b.EnvironmentID, Files: shared.Files, Protected: shared.Protected}, claim, in, x)
		if runtime.CodeOf(err) != runtime.CodeRunnerGone {
			break
		}
	}
	return begun, err
}

// awaitCase implements batch.Host.Await.
func (e *Engine) awaitCase(ctx context.Context, id runtime.ExecutionID, cancelled <-chan struct{}) (runtime.Execution, error) {
	s, x, err := e.find(ctx, id)
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

// recallBatches returns leaders for the unfinished batches that an earlier server left.
func (e *Engine) recallBatches(ctx context.Context) ([]*batch.Leader, error) {
	left, err := e.store.UnfinishedBatches(ctx)
	if err != nil {
		return nil, err
	}
	var leaders []*batch.Leader
	for _, u := range left {
		known, err := e.store.BatchExecutions(ctx, u.Batch.ID, runtime.BuildCase, u.Batch.CaseCount, func(int) error { return nil })
		if err != nil {
			return nil, err
		}
		u.Batch.QueuedAt = e.clock.Anchor(u.Batch.QueuedAt)
		l := e.batches.host.New(u.Batch, "")
		l.Recall(known)
		if u.Cancelled {
			l.Cancel(wasCancelled)
		}
		e.batches.adopt(l, e.memory.Adopt(u.Batch.Tenant, batchBytes+2*u.Bytes))
		e.leaseBatch(u.Batch)
		e.inputs.adopt(u.Batch.Tenant, u.Batch.InputBytes)
		// A batch counts as one execution.
		e.holdings.ledger.Adopt(u.Batch.Tenant, quota.Executions, 1)
		leaders = append(leaders, l)
	}
	return leaders, nil
}

// Batch returns the current state of a batch, or BATCH_NOT_FOUND.
func (e *Engine) Batch(ctx context.Context, id runtime.BatchID) (runtime.Batch, error) {
	if l := e.batches.get(id); l != nil {
		return l.Batch(), nil
	}
	return e.store.Batch(ctx, id)
}

// BatchFilter selects batches; a zero field selects all.
type BatchFilter = store.BatchFilter

// Batches returns the batches after an id, oldest or newest first, and the number of all that match.
// It returns at most first+1 batches, so that the caller sees whether there are more.
func (e *Engine) Batches(ctx context.Context, filter BatchFilter, first int, after runtime.BatchID) (all []runtime.Batch, total int, err error) {
	all, total, err = e.store.Batches(ctx, filter, first, after)
	for i, b := range all {
		if l := e.batches.get(b.ID); l != nil {
			all[i] = l.Batch() // newer than what is stored
		}
	}
	return all, total, err
}

// BatchCases returns the cases first to end-1 of a batch. It calls charge with the size of each
// record in bytes, and returns charge's error.
func (e *Engine) BatchCases(ctx context.Context, b runtime.Batch, first, end int, charge func(bytes int) error) ([]runtime.Case, error) {
	executions, err := e.batchExecutions(ctx, b.ID, first, end, charge)
	if err != nil {
		return nil, err
	}
	cases := make([]runtime.Case, 0, max(0, end-first))
	for number := first; number < end; number++ {
		x, known := executions[number]
		c := runtime.Case{Index: number, State: b.CaseState(number, x, known)}
		if known {
			c.Execution = &x
		}
		cases = append(cases, c)
	}
	return cases, nil
}

// BatchBuild returns the build of a batch; nil: it has none, or retention removed it.
func (e *Engine) BatchBuild(ctx context.Context, id runtime.BatchID, charge func(bytes int) error) (*runtime.Execution, error) {
	executions, err := e.batchExecutions(ctx, id, runtime.BuildCase, 0, charge)
	x, known := executions[runtime.BuildCase]
	if err != nil || !known {
		return nil, err
	}
	return &x, nil
}

// batchExecutions returns the executions of a batch from first up to end by their number. Those
// that haven't ended are taken from their sessions.
func (e *Engine) batchExecutions(ctx context.Context, id runtime.BatchID, first, end int, charge func(bytes int) error) (map[int]runtime.Execution, error) {
	executions, err := e.store.BatchExecutions(ctx, id, first, end, charge)
	for number, x := range executions {
		if s := e.sessions.get(x.ID); s != nil {
			executions[number] = s.Execution() // newer than what is stored
		}
	}
	return executions, err
}

// CancelBatch cancels the running execution of a batch and skips the rest. It returns when the batch
// has ended, or after two seconds. A batch that has ended stays unchanged.
func (e *Engine) CancelBatch(ctx context.Context, id runtime.BatchID) (runtime.Batch, error) {
	return e.cancelBatch(ctx, id, wasCancelled)
}

// wasCancelled is the message of a batch that a caller cancelled.
const wasCancelled = "it was cancelled"

// cancelBatch is CancelBatch, and message becomes the batch's.
func (e *Engine) cancelBatch(ctx context.Context, id runtime.BatchID, message string) (runtime.Batch, error) {
	l := e.batches.get(id)
	if l == nil {
		return e.store.Batch(ctx, id)
	}
	// This is stored first, so that the next server cancels the batch too.
	if err := e.store.CancelBatch(ctx, id); err != nil {
		return runtime.Batch{}, err
	}
	l.Cancel(message)
	late := time.NewTimer(2 * time.Second)
	defer late.Stop()
	for {
		state, changed := l.State()
		if state.Batch.State == runtime.BatchFinished {
			return state.Batch, nil
		}
		select {
		case <-changed:
		case <-late.C:
			return state.Batch, nil
		case <-ctx.Done():
			return runtime.Batch{}, context.Cause(ctx)
		}
	}
}
