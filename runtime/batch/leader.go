// Package batch leads a batch: its build, then each case, one after the other. It
// guarantees that each is started once, also over restarts of the server, and that nobody
// sees an outcome before it is stored.
//
//	begin ─▶ await ─▶ judge ─▶ the end is stored ─▶ Ended
//	  ▲                 │
//	  └── next case ◀───┘
//
// Each case is an execution like any other. Its idempotency key is made of the batch and
// the case. So a next server that begins it again gets the one that there is.
package batch

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
	"github.com/rockpool/rockpool/runtime/latest"
)

// The pauses between tries to store an end.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = 2 * time.Second
)

// A Host is what all leaders of a server share.
type Host struct {
	// Begin starts a case, or returns the execution that was started for it. caller is as New
	// got it. It ends early once cancelled is closed.
	Begin func(ctx context.Context, b runtime.Batch, caller string, number int, cancelled <-chan struct{}) (runtime.Execution, error)
	// Await returns an execution once it has ended. It cancels it once cancelled is closed.
	Await func(ctx context.Context, id runtime.ExecutionID, cancelled <-chan struct{}) (runtime.Execution, error)
	// Finish stores the end.
	Finish func(ctx context.Context, b runtime.Batch) error
	// Ended is called once the end is stored, and before anybody sees it.
	Ended  func(l *Leader)
	Logger *zap.Logger
}

// A State is what is known of a batch at one moment. Nobody changes it.
type State struct {
	Batch      runtime.Batch
	Executions []runtime.ExecutionID // in the order in which they began, the build first; "": it was collected
}

// A Leader leads one batch that isn't finished. Its methods are safe for concurrent use,
// but for Begin, Recall and Run.
type Leader struct {
	host   *Host
	caller string
	begun  *runtime.Execution // by Begin; nil: nothing is
	next   int                // the position that Run goes on at

	state     latest.Value[*State]
	cancel    sync.Once
	cancelled chan struct{} // closed by Cancel
}

// New returns the leader of a batch that is to be recorded, or that an earlier server left.
// caller is whose the claims of its runners are; "": that isn't known any more.
func (h *Host) New(b runtime.Batch, caller string) *Leader {
	l := &Leader{host: h, caller: caller, cancelled: make(chan struct{})}
	l.state.Set(&State{Batch: b})
	return l
}

// State returns the newest state, and a channel that is closed once there is a newer one.
func (l *Leader) State() (*State, <-chan struct{}) { return l.state.Get() }

// Batch returns the batch as it is.
func (l *Leader) Batch() runtime.Batch {
	state, _ := l.state.Get()
	return state.Batch
}

// Cancel ends the batch, and the case that runs. It never blocks.
func (l *Leader) Cancel() { l.cancel.Do(func() { close(l.cancelled) }) }

// Recall takes in the executions that an earlier server began, by their case.
func (l *Leader) Recall(known map[int]runtime.Execution) {
	b := l.Batch()
	for position := range b.Steps() {
		x, ok := known[b.First()+position]
		if !ok {
			break
		}
		if position > 0 { // the last one is judged by Run
			l.ended(position-1, known[b.First()+position-1])
			l.next = position
		}
		l.began(position, x)
	}
}

// Begin begins the first of its executions, so that the caller learns what hinders it.
func (l *Leader) Begin(ctx context.Context) (runtime.Execution, error) {
	x, err := l.begin(ctx, 0)
	if err == nil {
		l.begun = &x
	}
	return x, err
}

// Run leads the batch to its end, and stores that. It is called once. Where ctx ends it
// returns before: the next server goes on.
func (l *Leader) Run(ctx context.Context) {
	outcome, message := l.lead(ctx)
	if outcome == "" {
		return
	}
	state, _ := l.state.Get()
	end := *state
	end.Batch.State, end.Batch.Outcome, end.Batch.Message, end.Batch.FinishedAt = runtime.BatchFinished, outcome, message, time.Now()
	for pauses := (backoff.Backoff{First: firstPause, Last: lastPause}); ; {
		err := l.host.Finish(context.WithoutCancel(ctx), end.Batch)
		if err == nil {
			break
		}
		l.host.Logger.Error("the end of a batch could not be stored, trying again", zap.String("batch", string(end.Batch.ID)), zap.Error(err))
		if pauses.Wait(ctx) != nil {
			return // the next server ends it
		}
	}
	l.host.Ended(l) // before a caller sees it and starts the next one, for which the quota has room then
	l.state.Set(&end)
}

// lead returns how the batch ended; "": ctx ended first.
func (l *Leader) lead(ctx context.Context) (outcome runtime.BatchOutcome, message string) {
	for position := l.next; position < l.Batch().Steps(); position++ {
		if state, _ := l.state.Get(); position == len(state.Executions) && l.isCancelled() { // else it runs, and step cancels it
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

// step begins the execution at a position, and awaits its end.
func (l *Leader) step(ctx context.Context, position int) (x runtime.Execution, err error) {
	if l.begun != nil {
		x, l.begun = *l.begun, nil
	} else if x, err = l.begin(ctx, position); err != nil {
		return x, err
	}
	return l.host.Await(ctx, x.ID, l.cancelled)
}

func (l *Leader) begin(ctx context.Context, position int) (runtime.Execution, error) {
	b := l.Batch()
	x, err := l.host.Begin(ctx, b, l.caller, b.First()+position, l.cancelled)
	if err == nil {
		l.began(position, x)
	}
	return x, err
}

// judge returns how the batch ends after the execution at a position; "": it goes on.
func (l *Leader) judge(position int, x runtime.Execution) (outcome runtime.BatchOutcome, message string) {
	b := l.Batch()
	number := b.First() + position
	switch {
	case l.isCancelled() && (number+1 < b.CaseCount || x.End.Outcome == runtime.OutcomeCancelled):
		return l.cancelledOutcome()
	case x.End.Outcome == runtime.OutcomeRunnerGone && !b.FreshRunners():
		return runtime.BatchRunnerGone, x.End.Message
	case number == runtime.BuildCase && !x.Passed():
		return runtime.BatchBuildFailed, "the build failed: " + x.End.Message
	case b.StopOnFailure && !x.Passed() && number+1 < b.CaseCount:
		return runtime.BatchStopped, "a case failed, and the later ones were skipped"
	}
	return "", ""
}

// failed returns how the batch ends where an execution can't be started.
func (l *Leader) failed(err error) (outcome runtime.BatchOutcome, message string) {
	var typed *runtime.Error
	if !errors.As(err, &typed) || typed.Code == runtime.CodeInternal {
		l.host.Logger.Error("a case could not be started", zap.String("batch", string(l.Batch().ID)), zap.Error(err))
		return runtime.BatchFailed, "a case could not be started: the server's log has the detail"
	}
	if typed.Code == runtime.CodeRunnerGone && !l.Batch().FreshRunners() {
		return runtime.BatchRunnerGone, typed.Message
	}
	return runtime.BatchFailed, "a case could not be started: " + typed.Message
}

func (l *Leader) isCancelled() bool {
	select {
	case <-l.cancelled:
		return true
	default:
		return false
	}
}

func (l *Leader) cancelledOutcome() (outcome runtime.BatchOutcome, message string) {
	return runtime.BatchCancelled, "it was cancelled"
}

// began publishes that the execution at a position is there.
func (l *Leader) began(position int, x runtime.Execution) {
	state, _ := l.state.Get()
	if position < len(state.Executions) {
		return
	}
	next := *state
	known := state.Executions
	known = append(known, x.ID) // older states have fewer of the same
	next.Executions = known
	next.Batch.Progress.Begun = max(0, next.Batch.First()+position+1)
	l.state.Set(&next)
}

// ended publishes that the execution at a position has ended.
func (l *Leader) ended(position int, x runtime.Execution) {
	state, _ := l.state.Get()
	next := *state
	if next.Batch.First()+position == runtime.BuildCase {
		return
	}
	next.Batch.Progress.Ended++
	if !x.Passed() {
		next.Batch.Progress.Failed++
	}
	l.state.Set(&next)
}
