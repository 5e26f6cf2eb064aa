// Package batch leads a batch: its build, then each case, one after the other. It guarantees that
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

// A Host holds what all leaders of a server share.
type Host struct {
	// Begin starts a case, or returns the execution that was already started for it. caller is the
	// argument of New. Closing cancelled makes it return early.
	Begin func(ctx context.Context, b runtime.Batch, caller string, number int, cancelled <-chan struct{}) (runtime.Execution, error)
	// Await returns an execution once it has ended. Closing cancelled cancels the execution.
	Await func(ctx context.Context, id runtime.ExecutionID, cancelled <-chan struct{}) (runtime.Execution, error)
	// Finish stores the end.
	Finish func(ctx context.Context, b runtime.Batch) error
	// Ended is called once the end is stored, before any caller sees it.
	Ended  func(l *Leader)
	Logger *zap.Logger
}

// A State is the immutable state of a batch at one moment.
type State struct {
	Batch      runtime.Batch
	Executions []runtime.ExecutionID // in order of their beginning, the build first; "": removed by retention
}

// A Leader leads one unfinished batch. Its methods are safe for concurrent use, except Begin,
// Recall and Run.
type Leader struct {
	host   *Host
	caller string
	begun  *runtime.Execution // set by Begin; nil: none
	next   int                // position at which Run continues

	state     syncs.Latest[*State]
	cancel    sync.Once     // sets why and closes cancelled
	why       string        // message of the cancelled batch
	cancelled chan struct{} // closed by Cancel
}

// New returns the leader of a batch that is new or that an earlier server left. caller is the owner
// of the claims of its runners; "": unknown.
func (h *Host) New(b runtime.Batch, caller string) *Leader {
	l := &Leader{host: h, caller: caller, cancelled: make(chan struct{})}
	l.state.Set(&State{Batch: b})
	return l
}

// State returns the latest state, and a channel that is closed once there is a newer one.
func (l *Leader) State() (*State, <-chan struct{}) { return l.state.Get() }

// Batch returns the present batch.
func (l *Leader) Batch() runtime.Batch {
	state, _ := l.state.Get()
	return state.Batch
}

// Cancel ends the batch, with this message, and its running case. It never blocks and may be called
// again; then the first message counts.
func (l *Leader) Cancel(message string) {
	l.cancel.Do(func() {
		l.why = message
		close(l.cancelled)
	})
}

// Recall adopts the executions that an earlier server began, by case number.
func (l *Leader) Recall(known map[int]runtime.Execution) {
	b := l.Batch()
	for position := range b.Steps() {
		x, ok := known[b.First()+position]
		if !ok {
			break
		}
		if position > 0 { // Run judges the last one
			l.ended(position-1, known[b.First()+position-1])
			l.next = position
		}
		l.began(position, x)
	}
}

// Begin begins the first execution, so that its caller gets the error if that fails.
func (l *Leader) Begin(ctx context.Context) (runtime.Execution, error) {
	x, err := l.begin(ctx, 0)
	if err == nil {
		l.begun = &x
	}
	return x, err
}

// Run leads the batch to its end, and stores that. Call it once. If ctx ends first, it returns
// early and the next server continues.
func (l *Leader) Run(ctx context.Context) {
	outcome, message := l.lead(ctx)
	if outcome == "" {
		return
	}
	state, _ := l.state.Get()
	end := *state
	end.Batch.State, end.Batch.Outcome, end.Batch.Message, end.Batch.FinishedAt = runtime.BatchFinished, outcome, message, end.Batch.QueuedAt.Add(max(0, time.Since(end.Batch.QueuedAt)))
	for pauses := (backoff.Backoff{First: firstPause, Last: lastPause}); ; {
		err := l.host.Finish(context.WithoutCancel(ctx), end.Batch)
		if err == nil {
			break
		}
		l.host.Logger.Error("the end of a batch could not be stored; trying again", zap.String("batch", string(end.Batch.ID)), zap.Error(err))
		if pauses.Wait(ctx) != nil {
			return // the next server ends it
		}
	}
	l.host.Ended(l) // before callers see the end: the quota then has room for their next batch
	l.state.Set(&end)
}

// lead returns how the batch ended; "": ctx ended first.
func (l *Leader) lead(ctx context.Context) (outcome runtime.BatchOutcome, message string) {
	for position := l.next; position < l.Batch().Steps(); position++ {
		// If the execution at this position runs already, step cancels it.
		if state, _ := l.state.Get(); position == len(state.Executions) && l.isCancelled() {
			return l.cancelledOutcome()
		}
		x, err := l.step(ctx, position)
		switch {
		case ctx.Err() != nil:
			return "", ""
		case err != nil && l.isCancelled():
			return l.cancelledOutcome()
		case err != nil:
			return l.failed(err)
		}
		l.ended(position, x)
		if outcome, message := l.judge(position, x); outcome != "" {
			return outcome, message
		}
	}
	return runtime.BatchCompleted, "every case ended"
}

// step begins the execution at a position, and waits for its end.
func (l *Leader) step(ctx context.Context, position int) (x runtime.Execution, err error) {
	if l.begun != nil {
		x, l.begun = *l.begun, nil
	} else if x, err = l.begin(ctx, position); err != nil {
		return x, err
	}
	return l.host.Await(ctx, x.ID, l.cancelled)
}

// begin has the host begin the execution at a position, and records it in the batch.
func (l *Leader) begin(ctx context.Context, position int) (runtime.Execution, error) {
	b := l.Batch()
	x, err := l.host.Begin(ctx, b, l.caller, b.First()+position, l.cancelled)
	if err == nil {
		l.began(position, x)
	}
	return x, err
}

// judge returns how the batch ends after the execution at a position; "": it continues.
func (l *Leader) judge(position int, x runtime.Execution) (outcome runtime.BatchOutcome, message string) {
	b := l.Batch()
	number := b.First() + position
	switch {
	// A cancel that didn't reach the last case in time changes nothing.
	case l.isCancelled() && (number+1 < b.CaseCount || x.End.Outcome == runtime.OutcomeCancelled):
		return l.cancelledOutcome()
	case x.End.Outcome == runtime.OutcomeRunnerGone && !b.FreshRunners():
		return runtime.BatchRunnerGone, x.End.Message
	case number == runtime.BuildCase && !x.Passed():
		return runtime.BatchBuildFailed, "the build failed: " + x.End.Message
	case b.StopOnFailure && !x.Accepted() && number+1 < b.CaseCount:
		return runtime.BatchStopped, "a case failed, and the later ones were skipped"
	}
	return "", ""
}

// failed returns how the batch ends if an execution can't be started.
func (l *Leader) failed(err error) (outcome runtime.BatchOutcome, message string) {
	var typed *runtime.Error
	if !errors.As(err, &typed) || typed.Code == runtime.CodeInternal {
		l.host.Logger.Error("a case could not be started", zap.String("batch", string(l.Batch().ID)), zap.Error(err))
		return runtime.BatchFailed, "a case could not be started: see the server's log for the reason"
	}
	if typed.Code == runtime.CodeRunnerGone && !l.Batch().FreshRunners() {
		return runtime.BatchRunnerGone, typed.Message
	}
	return runtime.BatchFailed, "a case could not be started: " + typed.Message
}

// isCancelled reports whether the batch was cancelled; it doesn't block.
func (l *Leader) isCancelled() bool {
	select {
	case <-l.cancelled:
		return true
	default:
		return false
	}
}

// cancelledOutcome returns how a cancelled batch ends.
func (l *Leader) cancelledOutcome() (outcome runtime.BatchOutcome, message string) {
	return runtime.BatchCancelled, l.why
}

// began publishes the execution at a position.
func (l *Leader) began(position int, x runtime.Execution) {
	state, _ := l.state.Get()
	if position < len(state.Executions) {
		return
	}
	next := *state
	known := state.Executions
	known = append(known, x.ID) // older states share a prefix of this slice
	next.Executions = known
	next.Batch.Progress.Begun = max(0, next.Batch.First()+position+1)
	l.state.Set(&next)
}

// ended publishes the end of the execution at a position.
func (l *Leader) ended(position int, x runtime.Execution) {
	state, _ := l.state.Get()
	next := *state
	if next.Batch.First()+position == runtime.BuildCase {
		return
	}
	next.Batch.Progress.Ended++
	if !x.Accepted() {
		next.Batch.Progress.Failed++
	}
	l.state.Set(&next)
}
