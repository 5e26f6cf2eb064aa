package main

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

// A watcher starts one program, reads what it prints, leaves and comes back,
// and judges every byte.
type watcher struct {
	*house
	timing *timing
	random *rand.Rand

	watched *run
	cursor  *string
	reading reading
	marks   []mark // where it has been
	done    bool
}

// A mark is a cursor, and the reading there.
type mark struct {
	cursor  string
	reading reading
}

// maxMarks bounds what a watcher remembers.
const maxMarks = 64

// run starts a program in a runner and follows it to its end.
func (w *watcher) run(ctx context.Context, runner string, p program) {
	r := w.ledger.begin(p, runner)
	if !w.start(ctx, r) {
		return
	}
	w.watched = r
	if p.ends == endsByCancel {
		var cancelling sync.WaitGroup
		defer cancelling.Wait()
		after := time.Duration(w.random.IntN(3000)) * time.Millisecond
		cancelling.Go(func() {
			pause(ctx, after)
			w.cancel(ctx, r)
		})
	}
	began := time.Now()
	for !w.done && ctx.Err() == nil {
		w.follow(ctx)
		if time.Since(began) > askWithin {
			w.ledger.wrong(unfinished, 1, "program %s (to end by %s, in runner %s)", p.key, p.ends, runner)
			return
		}
	}
	if ctx.Err() == nil {
		again(ctx, w.house, r)
	}
}

func (w *watcher) start(ctx context.Context, r *run) bool {
	defer w.timing.begin(atStart)()
	in := client.StartExecutionInput{RunnerId: r.runner, Command: r.command(), IdempotencyKey: &r.key, TimeLimit: r.limit()}
	execution, err := client.Start(ctx, w.patient, in)
	if err != nil {
		goneOr(ctx, w.house, r.runner, "start program "+r.key, err)
		return false
	}
	w.ledger.started(r, execution)
	return true
}

func (w *watcher) cancel(ctx context.Context, r *run) {
	w.ledger.cancel(r)
	if err := client.Cancel(ctx, w.patient, r.id); err != nil && codeOf(err) != runtime.CodeRunnerGone {
		w.refused(ctx, "cancel program "+r.key, err)
	}
}

const eventsSubscription = `subscription($id: ID!, $after: Cursor) { executionEvents(executionId: $id, after: $after) {
	__typename cursor
	... on ExecutionOutput { stream base64 }
	... on ExecutionOutputLost { bytes }
	... on ExecutionFinished { execution { outcome exitCode signal goneReason usage { outputBytes } marks { finishedAt } } } } }`

type event struct {
	Type      string `json:"__typename"`
	Cursor    string
	Stream    string
	Base64    []byte
	Bytes     int64
	Execution finished
}

// finished is an execution's end, as a server tells it.
type finished struct {
	Outcome    string
	ExitCode   *int
	Signal     *string
	GoneReason *string
	Usage      struct{ OutputBytes int64 }
	Marks      struct{ FinishedAt time.Time }
}

func (f finished) outcome() outcome {
	return outcome{
		Outcome: f.Outcome, ExitCode: f.ExitCode, Signal: f.Signal, GoneReason: f.GoneReason,
		OutputBytes: f.Usage.OutputBytes, FinishedAt: f.Marks.FinishedAt,
	}
}

var errLeft = errors.New("the reader leaves")

// follow reads from where it is, for a while, to the end, or until the
// connection breaks; then it may go back to where it has been.
func (w *watcher) follow(ctx context.Context) {
	stay := 1 + w.random.IntN(30)
	err := w.Subscribe(ctx, client.Request{Query: eventsSubscription, Variables: map[string]any{"id": w.watched.id, "after": w.cursor}},
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
		w.ledger.wrong(unfinished, 1, "the events of program %s ended without its end", w.watched.key)
		w.done = true
		return
	case errors.Is(err, errLeft) || client.Passing(err):
		w.ledger.count(disconnects, 1)
	case codeOf(err) == runtime.CodeExecutionNotFound:
		w.ledger.wrong(lostExecutions, 1, "program %s, execution %s", w.watched.key, w.watched.id)
		w.done = true
		return
	case !w.excused(w.watched.asked, err):
		w.refused(ctx, "watch program "+w.watched.key, err)
	}
	if w.random.IntN(4) == 0 && len(w.marks) > 0 {
		w.ledger.count(rewinds, 1)
		w.rewind(w.marks[w.random.IntN(len(w.marks))])
	}
	pause(ctx, time.Duration(w.random.IntN(150))*time.Millisecond)
}

func (w *watcher) take(e event) {
	w.cursor = &e.Cursor
	switch e.Type {
	case "ExecutionOutput":
		w.reading.take(streamOf(e.Stream), e.Base64)
	case "ExecutionOutputLost":
		w.reading.lost(e.Bytes)
	case "ExecutionFinished":
		w.done = true
		w.ledger.ended(w.watched, e.Execution.outcome())
		w.ledger.judge(w.watched, w.reading, "a watcher")
		return
	}
	m := mark{e.Cursor, w.reading}
	if len(w.marks) < maxMarks {
		w.marks = append(w.marks, m)
	} else {
		w.marks[w.random.IntN(maxMarks)] = m
	}
}

// rewind goes back, and forgets nothing that was wrong.
func (w *watcher) rewind(m mark) {
	w.cursor, w.reading = &m.cursor, w.reading.backTo(m.reading)
}

// again asks for the end, and reads all of the output in pages, as somebody
// does who wasn't there.
func again(ctx context.Context, h *house, r *run) {
	var all reading
	var after *string
	for size := 1000; ; size *= 4 {
		var out struct {
			Execution struct {
				State string
				finished
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
		const query = `query($id: ID!, $after: Cursor, $size: Int) { execution(id: $id) { state outcome exitCode signal goneReason usage { outputBytes } marks { finishedAt }
			output(after: $after, maxBytes: $size) { chunks { stream base64 } lostBytes cursor end } } }`
		err := h.insist(ctx, func(ctx context.Context) error {
			return h.Ask(ctx, query, map[string]any{"id": r.id, "after": after, "size": min(size, 1<<20)}, &out)
		})
		x := out.Execution
		switch {
		case codeOf(err) == runtime.CodeExecutionNotFound:
			h.ledger.wrong(lostExecutions, 1, "program %s, execution %s, which had ended", r.key, r.id)
			return
		case err != nil:
			h.refused(ctx, "read the output of program "+r.key, err)
			return
		case x.State != "FINISHED":
			h.ledger.wrong(changedOutcomes, 1, "program %s is %s, and had ended before", r.key, x.State)
			return
		}
		all.lost(x.Output.LostBytes)
		for _, chunk := range x.Output.Chunks {
			all.take(streamOf(chunk.Stream), chunk.Base64)
		}
		if x.Output.End {
			h.ledger.ended(r, x.outcome())
			h.ledger.judge(r, all, "pages")
			return
		}
		after = &x.Output.Cursor
	}
}
