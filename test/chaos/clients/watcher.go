package clients

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/chaos/house"
	"github.com/rockpool/rockpool/test/chaos/ledger"
	"github.com/rockpool/rockpool/test/chaos/moment"
)

// A watcher starts one program and reads its output. It disconnects and resumes repeatedly, and
// judges every byte.
type watcher struct {
	*house.House
	timing *moment.Timing
	random *rand.Rand

	watched *ledger.Run
	cursor  *string
	reading ledger.Reading
	marks   []mark // earlier cursors
	done    bool
}

// A mark is a cursor and the reading up to it.
type mark struct {
	cursor  string
	reading ledger.Reading
}

// maxMarks is the number of marks that a watcher keeps.
const maxMarks = 64

// run starts a program in a runner and follows it to its end.
func (w *watcher) run(ctx context.Context, runner string, p ledger.Program) {
	r := w.Ledger.Begin(p, runner)
	if !w.start(ctx, r) {
		return
	}
	w.watched = r
	if p.Ends == ledger.EndsByCancel {
		var cancelling sync.WaitGroup
		defer cancelling.Wait()
		after := time.Duration(w.random.IntN(3000)) * time.Millisecond
		cancelling.Go(func() {
			moment.Pause(ctx, after)
			w.cancel(ctx, r)
		})
	}
	began := time.Now()
	for !w.done && ctx.Err() == nil {
		w.follow(ctx)
		if time.Since(began) > house.InsistWithin {
			w.Ledger.Wrong(ledger.Unfinished, 1, "program %s (to end by %s, in runner %s)", p.Key, p.Ends, runner)
			return
		}
	}
	if ctx.Err() == nil {
		Again(ctx, w.House, r)
	}
}

// start starts the program. false means the runner is gone, or the server refused it.
func (w *watcher) start(ctx context.Context, r *ledger.Run) bool {
	defer w.timing.Begin(moment.Start)()
	in := client.StartExecutionInput{RunnerId: r.Runner, Command: r.Command(), IdempotencyKey: &r.Key, TimeLimit: r.Limit()}
	execution, err := client.Start(ctx, w.Patient, in)
	if err != nil {
		goneOr(ctx, w.House, r.Runner, "start program "+r.Key, err)
		return false
	}
	w.Ledger.Started(r, execution)
	return true
}

// cancel records the cancellation in the ledger before the call, since its answer can be lost.
func (w *watcher) cancel(ctx context.Context, r *ledger.Run) {
	w.Ledger.Cancel(r)
	if err := client.Cancel(ctx, w.Patient, r.ID); err != nil && house.CodeOf(err) != runtime.CodeRunnerGone {
		w.Refused(ctx, "cancel program "+r.Key, err)
	}
}

// eventsSubscription reads an execution's events after a cursor, or all events if the cursor is
// null.
const eventsSubscription = `subscription($id: ID!, $after: Cursor) { executionEvents(executionId: $id, after: $after) {
	__typename cursor
	... on ExecutionOutput { stream base64 }
	... on ExecutionOutputLost { bytes }
	... on ExecutionFinished { execution { outcome exitCode signal goneReason usage { outputBytes } timestamps { finishedAt } } } } }`

// An event is one message of eventsSubscription. Which fields are set depends on Type.
type event struct {
	Type      string `json:"__typename"`
	Cursor    string
	Stream    string
	Base64    []byte
	Bytes     int64
	Execution finishedExecution
}

// finishedExecution is an execution's end, as a server reports it.
type finishedExecution struct {
	Outcome    string
	ExitCode   *int
	Signal     *string
	GoneReason *string
	Usage      struct{ OutputBytes int64 }
	Timestamps struct{ FinishedAt time.Time }
}

// outcome returns what the ledger judges.
func (f finishedExecution) outcome() ledger.Outcome {
	return ledger.Outcome{
		Outcome: f.Outcome, ExitCode: f.ExitCode, Signal: f.Signal, GoneReason: f.GoneReason,
		OutputBytes: f.Usage.OutputBytes, FinishedAt: f.Timestamps.FinishedAt,
	}
}

// errLeft ends a subscription from the watcher's side.
var errLeft = errors.New("the reader leaves")

// follow reads from the current cursor: for a while, to the end, or until the connection breaks.
// Afterwards it may go back to an earlier cursor.
func (w *watcher) follow(ctx context.Context) {
	stay := 1 + w.random.IntN(30)
	err := w.Subscribe(ctx, client.Request{Query: eventsSubscription, Variables: map[string]any{"id": w.watched.ID, "after": w.cursor}},
		func(data json.RawMessage) error {
			var out struct{ ExecutionEvents event }
			if err := json.Unmarshal(data, &out); err != nil {
				return err
			}
			w.take(out.ExecutionEvents)
			if stay--; stay == 0 && !w.done {
				return errLeft
			}
			return nil
		})
	switch {
	case w.done || ctx.Err() != nil:
		return
	case err == nil:
		w.Ledger.Wrong(ledger.Unfinished, 1, "the events of program %s ended without ExecutionFinished", w.watched.Key)
		w.done = true
		return
	case errors.Is(err, errLeft) || client.Passing(err):
		w.Ledger.Count(ledger.Disconnects, 1)
	case house.CodeOf(err) == runtime.CodeExecutionNotFound:
		w.Ledger.Wrong(ledger.LostExecutions, 1, "program %s, execution %s", w.watched.Key, w.watched.ID)
		w.done = true
		return
	case !w.Excused(w.watched.Asked, err):
		w.Refused(ctx, "watch program "+w.watched.Key, err)
	}
	if w.random.IntN(4) == 0 && len(w.marks) > 0 {
		w.Ledger.Count(ledger.Rewinds, 1)
		w.rewind(w.marks[w.random.IntN(len(w.marks))])
	}
	moment.Pause(ctx, time.Duration(w.random.IntN(150))*time.Millisecond)
}

// take records an event. It keeps a random selection of earlier cursors, to which the watcher can
// go back.
func (w *watcher) take(e event) {
	w.cursor = &e.Cursor
	switch e.Type {
	case "ExecutionOutput":
		w.reading.Take(ledger.StreamOf(e.Stream), e.Base64)
	case "ExecutionOutputLost":
		w.reading.Lost(e.Bytes)
	case "ExecutionFinished":
		w.done = true
		w.Ledger.Ended(w.watched, e.Execution.outcome())
		w.Ledger.Judge(w.watched, w.reading, "a watcher")
		return
	}
	m := mark{e.Cursor, w.reading}
	if len(w.marks) < maxMarks {
		w.marks = append(w.marks, m)
	} else {
		w.marks[w.random.IntN(maxMarks)] = m
	}
}

// rewind goes back to a mark. Faults found since stay in the reading.
func (w *watcher) rewind(m mark) {
	w.cursor, w.reading = &m.cursor, w.reading.BackTo(m.reading)
}

// Again reads the end, and all output in pages, like a client that wasn't connected before.
func Again(ctx context.Context, h *house.House, r *ledger.Run) {
	var all ledger.Reading
	var after *string
	for size := 1000; ; size *= 4 {
		var out struct {
			Execution struct {
				State string
				finishedExecution
				Output struct {
					Chunks []struct {
						Stream string
						Base64 []byte
					}
					LostBytes int64
					Cursor    string
					End       bool
				}
			}
		}
		const query = `query($id: ID!, $after: Cursor, $size: Int) { execution(id: $id) { state outcome exitCode signal goneReason usage { outputBytes } timestamps { finishedAt }
			output(after: $after, maxBytes: $size) { chunks { stream base64 } lostBytes cursor end } } }`
		err := h.Insist(ctx, func(ctx context.Context) error {
			return h.Do(ctx, query, map[string]any{"id": r.ID, "after": after, "size": min(size, 1<<20)}, &out)
		})
		x := out.Execution
		switch {
		case house.CodeOf(err) == runtime.CodeExecutionNotFound:
			h.Ledger.Wrong(ledger.LostExecutions, 1, "program %s, execution %s, which had ended", r.Key, r.ID)
			return
		case err != nil:
			h.Refused(ctx, "read the output of program "+r.Key, err)
			return
		case x.State != "FINISHED":
			h.Ledger.Wrong(ledger.ChangedOutcomes, 1, "program %s is %s, but had ended before", r.Key, x.State)
			return
		}
		all.Lost(x.Output.LostBytes)
		for _, chunk := range x.Output.Chunks {
			all.Take(ledger.StreamOf(chunk.Stream), chunk.Base64)
		}
		if x.Output.End {
			h.Ledger.Ended(r, x.outcome())
			h.Ledger.Judge(r, all, "pages")
			return
		}
		after = &x.Output.Cursor
	}
}
