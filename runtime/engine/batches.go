package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/batch"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/store"
)

// maxBatches bounds the unfinished batches of all tenants together; one tenant gets at most half.
const maxBatches = 512

type batchTable struct {
	mu     sync.Mutex // guards the fields below
	byID   map[runtime.BatchID]runningBatch
	shares quota.Bound
}

type runningBatch struct {
	by   *batch.Coordinator
	kept *quota.Kept
}

func newBatchTable() *batchTable {
	return &batchTable{byID: map[runtime.BatchID]runningBatch{}, shares: quota.Bound{Limit: maxBatches, Quota: "batches", Of: "running batches"}}
}

// add registers a coordinator with the batch's memory. It returns QUOTA_EXCEEDED if the tenant has its share
// of running batches, unless an earlier server left the batch.
func (all *batchTable) add(c *batch.Coordinator, kept *quota.Kept, recalled bool) error {
	b := c.Batch()
	all.mu.Lock()
	defer all.mu.Unlock()
	if recalled {
		all.shares.Adopt(b.Tenant)
	} else if err := all.shares.Acquire(b.Tenant); err != nil {
		return err
	}
	all.byID[b.ID] = runningBatch{c, kept}
	return nil
}

func (all *batchTable) remove(b runtime.Batch) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.shares.Release(b.Tenant)
	all.byID[b.ID].kept.Free()
	delete(all.byID, b.ID)
}

// get returns the coordinator of an unfinished batch, or nil.
func (all *batchTable) get(id runtime.BatchID) *batch.Coordinator {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.byID[id].by
}

// Batches serves batches to callers. A batch that a caller doesn't see doesn't exist for it: the error
// is BATCH_NOT_FOUND. Methods with a [runtime.Batch] check nothing: it must come from a call that did.
type Batches struct{ e *Engine }

func (e *Engine) batch(ctx context.Context, id runtime.BatchID) audit.Object {
	return audit.Object{Kind: audit.OfBatch, ID: string(id), Find: func(p access.Principal) (runtime.TenantID, error) {
		b, err := e.findBatch(ctx, id)
		if err != nil {
			return audit.WholeServer, err
		}
		return audit.Seen(b.Tenant, p.SeesBatch(b), store.NoBatch(id))
	}}
}

// Start records a batch in a claimed runner that the caller sees, starts its first execution, and
// returns both. It is idempotent by key: the same key returns the same batch, or CONFLICT if the input
// differs.
func (s *Batches) Start(ctx context.Context, in request.Start, of request.Batch) (b runtime.Batch, first runtime.Execution, err error) {
	e := s.e
	err = e.starting(ctx, in, audit.OfBatch, func(in request.Start) (id string, err error) {
		made := runtime.Batch{ID: runtime.NewBatchID(), RunnerID: in.RunnerID, Tenant: in.Tenant}
		if in.Key != "" {
			made.Key = request.ScopedKey(in.Keys, "start/"+in.Key)
		}
		if of.FreshRunners {
			return "", runtime.Invalid("freshRunners", "only run can give each case a runner of its own")
		}
		shared, steps, err := of.Plan(&made, in)
		if err != nil {
			return "", err
		}
		in.Key = ""
		made.Input = request.Digest([]any{in, of})
		if first, err = e.startBatch(ctx, made, "", shared, steps); err == nil {
			b, err = e.findBatch(ctx, first.Batch.ID)
		}
		return string(b.ID), err
	})
	return b, first, err
}

// startBatch records a batch, begins its first execution, and starts the batch's coordinator, which Run
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
	env, unused, err := e.useForBatch(ctx, b)
	if err != nil {
		return runtime.Execution{}, err
	}
	var taken undo
	defer taken.run()
	taken.add(unused)
	if err := e.usage.Begin(b.Tenant); err != nil {
		return runtime.Execution{}, err
	}
	taken.add(func() { e.usage.End(b.Tenant) })
	b.EnvironmentID, b.State, b.QueuedAt = env.ID, runtime.BatchRunning, e.clock.Now()
	encoded, err := request.EncodeSteps(steps, b, env)
	if err != nil {
		return runtime.Execution{}, err
	}
	start := batch.Encode(shared)
	b.InputBytes = int64(len(start))
	for _, step := range encoded {
		b.InputBytes += int64(len(step.Value) + len(step.Expected))
	}
	if err := e.inputs.Add(ctx, b.Tenant, b.InputBytes); err != nil {
		return runtime.Execution{}, err
	}
	taken.add(func() { e.inputs.Release(b.Tenant, b.InputBytes) })
	kept, err := e.memory.Keep(b.Tenant, bytesOfBatch(len(start), encoded), "a batch")
	if err != nil {
		return runtime.Execution{}, err
	}
	// The coordinator is registered before the batch is stored, so that a retry that finds the batch
	// also finds its coordinator.
	c := e.batchHost.New(b, caller)
	if err := e.batchTable.add(c, kept, false); err != nil {
		kept.Free()
		return runtime.Execution{}, err
	}
	taken.add(func() { e.batchTable.remove(b) })
	stored, added, err := e.store.AddBatch(ctx, b, start, encoded)
	if err != nil || !added {
		taken.run()
		return e.repeatedBatch(ctx, stored, b, err)
	}
	x, err := c.Begin(ctx)
	if err != nil {
		taken.run()
		if dropped := e.store.DropBatch(context.WithoutCancel(ctx), b); dropped != nil {
			e.logger.Warn("a batch that could not begin is still stored") // the next server ends it
		}
		return runtime.Execution{}, err
	}
	taken.keep()
	e.leaseBatch(b)
	return x, e.jobs.Add(c.Run) // if it fails, the next server continues the batch
}

// batchBytes is the memory of an unfinished batch in addition to its texts: its goroutine and state.
const batchBytes = 32 << 10

// bytesOfBatch returns what a batch keeps: what its executions share, and the largest step. Both are
// decoded from their records.
func bytesOfBatch(shared int, steps []store.BatchStep) int64 {
	largest := 0
	for _, step := range steps {
		largest = max(largest, len(step.Value))
	}
	return batchBytes + 2*int64(shared+largest)
}

// findBatch returns the current state of a batch, or BATCH_NOT_FOUND.
func (e *Engine) findBatch(ctx context.Context, id runtime.BatchID) (runtime.Batch, error) {
	if c := e.batchTable.get(id); c != nil {
		return c.Batch(), nil
	}
	return e.store.Batch(ctx, id)
}

// Get returns the current state of a batch.
func (s *Batches) Get(ctx context.Context, id runtime.BatchID) (b runtime.Batch, err error) {
	p, err := s.e.auth.Allow(ctx, "batch")
	if err != nil {
		return b, err
	}
	if b, err = s.e.findBatch(ctx, id); err == nil && !p.SeesBatch(b) {
		return runtime.Batch{}, store.NoBatch(id)
	}
	return b, err
}

// List returns the batches after an id, of the caller's tenant or of all, oldest or newest first, and the
// number of all that match. It returns at most first+1 batches, so that the caller sees whether there
// are more.
func (s *Batches) List(ctx context.Context, filter request.Batches, first int, after runtime.BatchID) (all []runtime.Batch, total int, err error) {
	p, err := s.e.auth.Allow(ctx, "batches")
	if err != nil {
		return nil, 0, err
	}
	filter.Tenant = p.Only()
	all, total, err = s.e.store.Batches(ctx, filter, first, after)
	for i, b := range all {
		if c := s.e.batchTable.get(b.ID); c != nil {
			all[i] = c.Batch() // newer than what is stored
		}
	}
	return all, total, err
}

// Cases returns cases of a batch from first up to end. It returns fewer if their executions would be
// too large for a page, but at least one.
func (s *Batches) Cases(ctx context.Context, b runtime.Batch, first, end int) ([]runtime.Case, error) {
	executions, end, err := s.executions(ctx, b, first, end)
	if err != nil {
		return nil, err
	}
	cases := make([]runtime.Case, 0, max(0, end-first))
	for number := first; number < end; number++ {
		x, known := executions[number]
		c := runtime.Case{Index: number, State: b.CaseState(number, x.Execution, known), RecordBytes: x.Bytes}
		if known {
			c.Execution = &x.Execution
		}
		cases = append(cases, c)
	}
	return cases, nil
}

// Build returns the build of a batch, or nil if it has none or retention removed it.
func (s *Batches) Build(ctx context.Context, b runtime.Batch) (*store.CaseExecution, error) {
	executions, _, err := s.executions(ctx, b, runtime.BuildCase, 0)
	x, known := executions[runtime.BuildCase]
	if err != nil || !known {
		return nil, err
	}
	return &x, nil
}

// executions is [store.Store.BatchExecutions]. Executions that haven't ended are taken from their
// sessions.
func (s *Batches) executions(ctx context.Context, b runtime.Batch, first, end int) (_ map[int]store.CaseExecution, until int, err error) {
	executions, until, err := s.e.store.BatchExecutions(ctx, b, first, end)
	for number, x := range executions {
		if running := s.e.sessions.Session(x.ID); running != nil {
			x.Execution = running.Execution() // newer than what is stored
			executions[number] = x
		}
	}
	return executions, until, err
}

// Events returns a reader of a batch's events after a cursor; "" is the beginning. Close it.
func (s *Batches) Events(ctx context.Context, id runtime.BatchID, after string) (*batch.Reader, error) {
	return audit.Do(ctx, s.e.auth, "batchEvents", s.e.batch(ctx, id), func() (*batch.Reader, error) {
		source := batch.Source{Open: s.e.sessions.Events}
		if c := s.e.batchTable.get(id); c != nil {
			source.State = c.State
			return batch.Open(source, after)
		}
		b, err := s.e.store.Batch(ctx, id)
		if err != nil {
			return nil, err
		}
		ids, err := s.e.store.BatchExecutionIDs(ctx, id)
		if err != nil {
			return nil, err
		}
		state := &batch.State{Batch: b}
		for number := b.First(); number < b.Progress.Begun; number++ {
			state.Executions = append(state.Executions, ids[number])
		}
		source.State = func() (*batch.State, <-chan struct{}) { return state, nil }
		return batch.Open(source, after)
	})
}

// Cancel cancels the running execution of a batch and skips the rest. It returns when the batch has
// ended, or after two seconds. A batch that has ended stays unchanged.
func (s *Batches) Cancel(ctx context.Context, id runtime.BatchID) (runtime.Batch, error) {
	return audit.Do(ctx, s.e.auth, "cancelBatch", s.e.batch(ctx, id), func() (runtime.Batch, error) {
		return s.e.cancelBatch(ctx, id, wasCancelled)
	})
}

const wasCancelled = "it was cancelled"

// cancelBatch is Batches.Cancel for the server itself. message becomes the batch's.
func (e *Engine) cancelBatch(ctx context.Context, id runtime.BatchID, message string) (runtime.Batch, error) {
	c := e.batchTable.get(id)
	if c == nil {
		return e.store.Batch(ctx, id)
	}
	// This is stored first, so that the next server cancels the batch too.
	if err := e.store.CancelBatch(ctx, id); err != nil {
		return runtime.Batch{}, err
	}
	c.Cancel(message)
	late := time.After(2 * time.Second)
	for {
		state, changed := c.State()
		if state.Batch.State == runtime.BatchFinished {
			return state.Batch, nil
		}
		select {
		case <-changed:
		case <-late:
			return state.Batch, nil
		case <-ctx.Done():
			return runtime.Batch{}, context.Cause(ctx)
		}
	}
}

// leaseBatch cancels a batch when its lease ends.
func (e *Engine) leaseBatch(b runtime.Batch) {
	e.leases.grant(string(b.ID), b.Lease, func() {
		_ = e.jobs.Add(func(ctx context.Context) {
			if _, err := e.cancelBatch(ctx, b.ID, fmt.Sprintf("it was cancelled: the client that started it is gone; it didn't renew its lease of %d s", b.Lease/time.Second)); err != nil && ctx.Err() == nil {
				e.leaseBatch(b) // the database may be unavailable: try again later
			}
		})
	})
}
