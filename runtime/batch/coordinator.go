// Package batch coordinates a batch: its build, then each case, one after the other. It guarantees that
// each is started once, even across restarts of the server, and that no caller sees an outcome
// before it is stored.
//
//	begin ─▶ await ─▶ judge ─▶ the end is stored ─▶ Ended
//	  ▲                 │
//	  └── next case ◀───┘
//
// Each case is an execution like any other. Its idempotency key is derived from the batch and the
// case, so a later server that begins it again gets the existing execution.
package batch

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
	"github.com/rockpool/rockpool/runtime/syncs"
)

// The pauses between tries to store an end.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = 2 * time.Second
)

// A Host holds what all coordinators of a server share.
type Host struct {
	// Begin starts a case, or returns the execution that was already started for it. caller is the
	// argument of New. Closing cancelled makes it return early.
	Begin func(ctx context.Context, b runtime.Batch, caller string, number int, cancelled <-chan struct{}) (runtime.Execution, error)
	// Await returns an execution once it has ended. Closing cancelled cancels the execution.
	Await func(ctx context.Context, id runtime.ExecutionID, cancelled <-chan struct{}) (runtime.Execution, error)
	// Finish stores the end.
	Finish func(ctx context.Context, b runtime.Batch) error
	// Ended is called once the end is stored, before any caller sees it.
	Ended  func(c *Coordinator)
	Logger *zap.Logger
}

// A State is the immutable state of a batch at one moment.
type State struct {
	Batch      runtime.Batch
	Executions []runtime.ExecutionID // in order of their beginning, the build first; "" means removed by retention
}

// A Coordinator leads one unfinished batch. Its methods are safe for concurrent use, except Begin,
// Recall and Run.
type Coordinator struct {
	host   *Host
	caller string
	begun  *runtime.Execution // set by Begin; nil means none
	next   int                // position at which Run continues

	state     syncs.Latest[*State]
	cancel    sync.Once     // sets why and closes cancelled
	why       string        // message of the cancelled batch
	cancelled chan struct{} // closed by Cancel
}

// New returns the coordinator of a batch that is new or that an earlier server left. caller is the owner
// of the claims of its runners; "" means unknown.
func (h *Host) New(b runtime.Batch, caller string) *Coordinator {
	c := &Coordinator{host: h, caller: caller, cancelled: make(chan struct{})}
	c.state.Set(&State{Batch: b})
	return c
}

// State returns the latest state, and a channel that is closed once there is a newer one.
func (c *Coordinator) State() (*State, <-chan struct{}) { return c.state.Get() }

// Batch returns the present batch.
func (c *Coordinator) Batch() runtime.Batch {
	state, _ := c.state.Get()
	return state.Batch
}

// Cancel ends the batch, with this message, and its running case. It never blocks and may be called
// again; then the first message counts.
func (c *Coordinator) Cancel(message string) {
	c.cancel.Do(func() {
		c.why = message
		close(c.cancelled)
	})
}

// Recall adopts the executions that an earlier server began, by case number.
func (c *Coordinator) Recall(known map[int]runtime.Execution) {
	b := c.Batch()
	for position := range b.Steps() {
		x, ok := known[b.First()+position]
		if !ok {
			break
		}
		if position > 0 { // Run judges the last one
			c.ended(position-1, known[b.First()+position-1])
			c.next = position
		}
		c.began(position, x)
	}
}

// Begin begins the first execution, so that its caller gets the error if that fails.
func (c *Coordinator) Begin(ctx context.Context) (runtime.Execution, error) {
	x, err := c.begin(ctx, 0)
	if err == nil {
		c.begun = &x
	}
	return x, err
}

// Run leads the batch to its end, and stores that. Call it once. If ctx ends first, it returns
// early and the next server continues.
func (c *Coordinator) Run(ctx context.Context) {
	outcome, message := c.lead(ctx)
	if outcome == "" {
		return
	}
	state, _ := c.state.Get()
	end := *state
	end.Batch.State, end.Batch.Outcome, end.Batch.Message, end.Batch.FinishedAt = runtime.BatchFinished, outcome, message, end.Batch.QueuedAt.Add(max(0, time.Since(end.Batch.QueuedAt)))
	for pauses := (backoff.Backoff{First: firstPause, Last: lastPause}); ; {
		err := c.host.Finish(context.WithoutCancel(ctx), end.Batch)
		if err == nil {
			break
		}
		c.host.Logger.Error("the end of a batch could not be stored; trying again", zap.String("batch", string(end.Batch.ID)), zap.Error(err))
		if pauses.Wait(ctx) != nil {
			return // the next server ends it
		}
	}
	c.host.Ended(c) // before callers see the end: the quota then has room for their next batch
	c.state.Set(&end)
}

// lead returns how the batch ended; "" means ctx ended first.
func (c *Coordinator) lead(ctx context.Context) (outcome runtime.BatchOutcome, message string) {
	for position := c.next; position < c.Batch().Steps(); position++ {
		// If the execution at this position runs already, step cancels it.
		if state, _ := c.state.Get(); position == len(state.Executions) && c.isCancelled() {
			return c.cancelledOutcome()
		}
		x, err := c.step(ctx, position)
		switch {
		case ctx.Err() != nil:
			return "", ""
		case err != nil && c.isCancelled():
			return c.cancelledOutcome()
		case err != nil:
			return c.failed(err)
		}
		c.ended(position, x)
		if outcome, message := c.judge(position, x); outcome != "" {
			return outcome, message
		}
	}
	return runtime.BatchCompleted, "every case ended"
}

// step begins the execution at a position, and waits for its end.
func (c *Coordinator) step(ctx context.Context, position int) (x runtime.Execution, err error) {
	if c.begun != nil {
		x, c.begun = *c.begun, nil
	} else if x, err = c.begin(ctx, position); err != nil {
		return x, err
	}
	return c.host.Await(ctx, x.ID, c.cancelled)
}

func (c *Coordinator) begin(ctx context.Context, position int) (runtime.Execution, error) {
	b := c.Batch()
	x, err := c.host.Begin(ctx, b, c.caller, b.First()+position, c.cancelled)
	if err == nil {
		c.began(position, x)
	}
	return x, err
}

// judge returns how the batch ends after the execution at a position; "" means it continues.
func (c *Coordinator) judge(position int, x runtime.Execution) (outcome runtime.BatchOutcome, message string) {
	b := c.Batch()
	number := b.First() + position
	switch {
	// A cancel that didn't reach the last case in time changes nothing.
	case c.isCancelled() && (number+1 < b.CaseCount || x.End.Outcome == runtime.OutcomeCancelled):
		return c.cancelledOutcome()
	case x.End.Outcome == runtime.OutcomeRunnerGone && !b.FreshRunners():
		return runtime.BatchRunnerGone, x.End.Message
	case number == runtime.BuildCase && !x.Passed():
		return runtime.BatchBuildFailed, "the build failed: " + x.End.Message
	case b.StopOnFailure && !x.Accepted() && number+1 < b.CaseCount:
		return runtime.BatchStopped, "a case failed, and the later ones were skipped"
	}
	return "", ""
}

func (c *Coordinator) failed(err error) (outcome runtime.BatchOutcome, message string) {
	typed, ok := errors.AsType[*runtime.Error](err)
	if !ok || typed.Code == runtime.CodeInternal {
		c.host.Logger.Error("a case could not be started", zap.String("batch", string(c.Batch().ID)), zap.Error(err))
		return runtime.BatchFailed, "a case could not be started: see the server's log for the reason"
	}
	if typed.Code == runtime.CodeRunnerGone && !c.Batch().FreshRunners() {
		return runtime.BatchRunnerGone, typed.Message
	}
	return runtime.BatchFailed, "a case could not be started: " + typed.Message
}

func (c *Coordinator) isCancelled() bool { return syncs.Closed(c.cancelled) }

func (c *Coordinator) cancelledOutcome() (outcome runtime.BatchOutcome, message string) {
	return runtime.BatchCancelled, c.why
}

func (c *Coordinator) began(position int, x runtime.Execution) {
	state, _ := c.state.Get()
	if position < len(state.Executions) {
		return
	}
	next := *state
	known := state.Executions
	known = append(known, x.ID) // older states share a prefix of this slice
	next.Executions = known
	next.Batch.Progress.Begun = max(0, next.Batch.First()+position+1)
	c.state.Set(&next)
}

func (c *Coordinator) ended(position int, x runtime.Execution) {
	state, _ := c.state.Get()
	next := *state
	if next.Batch.First()+position == runtime.BuildCase {
		return
	}
	next.Batch.Progress.Ended++
	if !x.Accepted() {
		next.Batch.Progress.Failed++
	}
	c.state.Set(&next)
}
