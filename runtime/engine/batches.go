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
	"github.com/rockpool/rockpool/runtime/share"
	"github.com/rockpool/rockpool/runtime/store"
)

// caseWait is how long a case waits at least for its fresh runner: the earlier case had the
// one that was idle.
const caseWait = time.Minute

// freshAttempts is how many runners a case gets at most, where they go before it begins: one
// may have expired while no server was there.
const freshAttempts = 3

// batches are those that haven't ended.
type batches struct {
	host batch.Host

	mu     sync.Mutex // guards what follows
	byID   map[runtime.BatchID]*batch.Leader
	shares share.Bound
}

func newBatches() *batches {
	return &batches{byID: map[runtime.BatchID]*batch.Leader{}, shares: share.Bound{Limit: maxBatches, Quota: "batches", Of: "running batches"}}
}

// add makes a leader findable. It returns QUOTA_EXCEEDED if its tenant has its share.
func (all *batches) add(l *batch.Leader) error {
	b := l.Batch()
	all.mu.Lock()
	defer all.mu.Unlock()
	if err := all.shares.Acquire(b.Tenant); err != nil {
		return err
	}
	all.byID[b.ID] = l
	return nil
}

// adopt makes a leader findable that an earlier server had.
func (all *batches) adopt(l *batch.Leader) {
	b := l.Batch()
	all.mu.Lock()
	defer all.mu.Unlock()
	all.shares.Adopt(b.Tenant)
	all.byID[b.ID] = l
}

// remove lets go of a batch that add or adopt took in.
func (all *batches) remove(b runtime.Batch) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.shares.Release(b.Tenant)
	delete(all.byID, b.ID)
}

func (all *batches) len() int {
	all.mu.Lock()
	defer all.mu.Unlock()
	return len(all.byID)
}

// get returns the leader of a batch that hasn't ended, or nil.
func (all *batches) get(id runtime.BatchID) *batch.Leader {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.byID[id]
}

// StartBatch records a batch in a claimed runner and starts its first execution, which it
// returns too. The same key gives the same batch; with another input CONFLICT.
func (e *Engine) StartBatch(ctx context.Context, in StartInput, of BatchInput) (runtime.Batch, runtime.Execution, error) {
	asked := in
	asked.Key = ""
	b := runtime.Batch{ID: runtime.NewBatchID(), RunnerID: in.RunnerID, Tenant: in.Tenant, Input: digest([]any{asked, of})}
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

// started returns the batch of its first execution.
func (e *Engine) started(ctx context.Context, x runtime.Execution, err error) (runtime.Batch, runtime.Execution, error) {
	if err != nil {
		return runtime.Batch{}, runtime.Execution{}, err
	}
	b, err := e.Batch(ctx, x.Batch.ID)
	return b, x, err
}

// startBatch records a batch, begins its first execution, and has it led. It holds its
// runner until it ends.
func (e *Engine) startBatch(ctx context.Context, b runtime.Batch, caller string, shared batch.Shared, steps []batch.Step) (runtime.Execution, error) {
	if b.Key != "" {
		if err := e.unusedKey(ctx, b); err != nil {
			return runtime.Execution{}, err
		}
		if stored, found, err := e.store.BatchByKey(ctx, b.Key); err != nil || found {
			return e.repeatedBatch(ctx, stored, b, err)
		}
	}
	env, unused, err := e.useForBatch(ctx, b)
	if err != nil {
		return runtime.Execution{}, err
	}
	if err := e.holdings.begin(b.Tenant); err != nil {
		unused()
		return runtime.Execution{}, err
	}
	done := func() {
		e.holdings.end(b.Tenant)
		unused()
	}
	b.EnvironmentID, b.State, b.QueuedAt = env.ID, runtime.BatchRunning, time.Now()
	encoded, err := encodeSteps(steps, b, env)
	if err != nil {
		done()
		return runtime.Execution{}, err
	}
	l := e.batches.host.New(b, caller)
	if err := e.batches.add(l); err != nil {
		done()
		return runtime.Execution{}, err
	}
	stored, added, err := e.store.AddBatch(ctx, b, batch.Encode(shared), encoded)
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
	return x, e.jobs.add(l.Run) // else the next server goes on
}

// useForBatch begins a batch's use of its runner, if it has one, until done.
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

// batchEnded is of [batch.Host].
func (e *Engine) batchEnded(l *batch.Leader) {
	b := l.Batch()
	e.holdings.end(b.Tenant)
	if !b.FreshRunners() {
		if p, err := e.poolOf(b.RunnerID); err == nil {
			p.Done(context.Background(), b.RunnerID)
		}
	}
	e.batches.remove(b) // now callers see its end
	if b.Release && !b.FreshRunners() {
		e.releaseLater(b.RunnerID)
	}
}

// unusedKey returns CONFLICT where a batch's key is that of an execution, and
// BATCH_NOT_FOUND where it is that of the batch, which was collected.
func (e *Engine) unusedKey(ctx context.Context, b runtime.Batch) error {
	if _, found, err := e.store.ExecutionByKey(ctx, b.Key); err != nil || found {
		return orConflict(err)
	}
	spent, found, err := e.store.SpentKey(ctx, b.Key, time.Now())
	switch {
	case err != nil || !found:
		return err
	case spent.Input != b.Input:
		return keyConflict()
	}
	if _, found, err := e.store.BatchByKey(ctx, b.Key); err != nil || found || b.Release {
		return err // it is there; or the key is the one with which its runner was claimed
	}
	return runtime.Errorf(runtime.CodeBatchNotFound, "the batch that was started with this idempotencyKey was collected")
}

func orConflict(err error) error {
	if err != nil {
		return err
	}
	return keyConflict()
}

// repeatedBatch answers where a key was used before.
func (e *Engine) repeatedBatch(ctx context.Context, stored, b runtime.Batch, err error) (runtime.Execution, error) {
	switch {
	case err != nil:
		return runtime.Execution{}, err
	case stored.Input != b.Input:
		return runtime.Execution{}, keyConflict()
	}
	l := e.batches.get(stored.ID)
	for l != nil { // its first execution may be being begun
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
		err = runtime.Errorf(runtime.CodeBatchNotFound, "the first execution of the batch that was started with this idempotencyKey isn't there, or was collected")
	}
	return x, err
}

// laterCase reports whether a key is one that caseKey made, but not for a batch's first case: no
// caller's begins so.
func laterCase(key string) bool {
	return strings.HasPrefix(key, "batch/") && !strings.HasSuffix(key, "/0")
}

// caseKey is the idempotency key of an execution of a batch.
func caseKey(id runtime.BatchID, number int) string {
	if number == runtime.BuildCase {
		return fmt.Sprintf("batch/%s/build", id)
	}
	return fmt.Sprintf("batch/%s/%d", id, number)
}

// beginCase is of [batch.Host].
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
	x.Batch = &runtime.BatchPlace{ID: b.ID, Case: number}
	if b.FreshRunners() {
		x, err = e.startFresh(ctx, b, caller, shared, in, x, cancelled)
	} else {
		x, err = e.start(ctx, in, x)
	}
	if err == nil && in.Stdin && x.State != runtime.ExecutionFinished {
		err = e.feedLater(x.ID, step.Stdin, 0)
	}
	return x, err
}

// readStep returns what is stored of an execution, and of all of its batch.
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

// startFresh starts a case in a runner of its own.
func (e *Engine) startFresh(ctx context.Context, b runtime.Batch, caller string, shared batch.Shared, in StartInput, x runtime.Execution, cancelled <-chan struct{}) (runtime.Execution, error) {
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
		if attempt > 0 { // its runner went before anything began there
			claim.Claim.Key = fmt.Sprintf("%s/%d", x.Key, attempt)
		}
		begun, err = e.claimAndStart(ctx, RunInput{EnvironmentID: b.EnvironmentID, Files: shared.Files}, claim, in, x)
		if runtime.CodeOf(err) != runtime.CodeRunnerGone {
			break
		}
	}
	return begun, err
}

// awaitCase is of [batch.Host].
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
	select {
	case <-s.Done():
		return s.Execution(), nil
	case <-ctx.Done():
		return x, context.Cause(ctx)
	}
}

// recallBatches returns the leaders of all batches that an earlier server left.
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
		l := e.batches.host.New(u.Batch, "")
		l.Recall(known)
		if u.Cancelled {
			l.Cancel()
		}
		e.batches.adopt(l)
		e.holdings.ledger.Adopt(u.Batch.Tenant, quota.Executions, 1)
		leaders = append(leaders, l)
	}
	return leaders, nil
}

// Batch returns one as it is.
func (e *Engine) Batch(ctx context.Context, id runtime.BatchID) (runtime.Batch, error) {
	if l := e.batches.get(id); l != nil {
		return l.Batch(), nil
	}
	return e.store.Batch(ctx, id)
}

// BatchFilter selects batches; a zero field selects all.
type BatchFilter = store.BatchFilter

// Batches returns the first ones after an id, oldest or newest first, at most one more than
// first, and how many match in all.
func (e *Engine) Batches(ctx context.Context, filter BatchFilter, first int, after runtime.BatchID) (all []runtime.Batch, total int, err error) {
	all, total, err = e.store.Batches(ctx, filter, first, after)
	for i, b := range all {
		if l := e.batches.get(b.ID); l != nil {
			all[i] = l.Batch() // newer than what is stored
		}
	}
	return all, total, err
}

// BatchCases returns the cases of a batch from first up to, not including, end.
// It calls charge with the size of each record, in bytes; its error is returned.
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

// BatchBuild returns the build of a batch; nil: there is none, or not any more.
func (e *Engine) BatchBuild(ctx context.Context, id runtime.BatchID, charge func(bytes int) error) (*runtime.Execution, error) {
	executions, err := e.batchExecutions(ctx, id, runtime.BuildCase, 0, charge)
	x, known := executions[runtime.BuildCase]
	if err != nil || !known {
		return nil, err
	}
	return &x, nil
}

func (e *Engine) batchExecutions(ctx context.Context, id runtime.BatchID, first, end int, charge func(bytes int) error) (map[int]runtime.Execution, error) {
	executions, err := e.store.BatchExecutions(ctx, id, first, end, charge)
	for number, x := range executions {
		if s := e.sessions.get(x.ID); s != nil {
			executions[number] = s.Execution() // newer than what is stored
		}
	}
	return executions, err
}

// CancelBatch cancels what a batch runs, and skips the rest. It returns once the batch has
// ended, or after two seconds. One that has ended stays as it is.
func (e *Engine) CancelBatch(ctx context.Context, id runtime.BatchID) (runtime.Batch, error) {
	l := e.batches.get(id)
	if l == nil {
		return e.store.Batch(ctx, id)
	}
	if err := e.store.CancelBatch(ctx, id); err != nil {
		return runtime.Batch{}, err
	}
	l.Cancel()
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
