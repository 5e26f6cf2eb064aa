package batch

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/events"
)

// An Event is an event of a batch. Cursor marks the position after it.
type Event struct {
	Cursor    string
	Finished  *runtime.Batch      // the ended batch, with its last event; nil means another event
	Case      int                 // otherwise: number of the case
	Execution runtime.ExecutionID // its execution
	Event     events.Event        // event of that execution
}

// A Source gives access to a batch's events.
type Source struct {
	State func() (*State, <-chan struct{}) // see Coordinator.State
	// Open returns a reader of an execution's events after a cursor.
	Open func(ctx context.Context, id runtime.ExecutionID, after string) (*events.Reader, error)
}

// A Reader reads the events of a batch: those of its executions, one execution after the other, and
// then its end. It is for one goroutine. Close it.
type Reader struct {
	source   Source
	position int    // of the execution to read next
	after    string // cursor in its events
	current  *events.Reader
	finished bool
}

// Open returns a reader of a batch's events after a cursor; "" is the beginning. Events before the
// cursor aren't repeated, except the end, which is a state. INVALID_INPUT names the field after.
// Executions that retention removed are left out.
func Open(source Source, after string) (*Reader, error) {
	r := &Reader{source: source}
	if after == "" {
		return r, nil
	}
	position, inner, ok := strings.Cut(after, ".")
	at, err := strconv.Atoi(position)
	state, _ := source.State()
	if !ok || err != nil || at < 0 || at > state.Batch.Steps() || strconv.Itoa(at) != position {
		return nil, badCursor()
	}
	r.position, r.after = at, inner
	if at < len(state.Executions) && inner != "" && state.Executions[at] != "" {
		if _, err := events.Parse(state.Executions[at], inner); err != nil {
			return nil, badCursor()
		}
	}
	return r, nil
}

func badCursor() error {
	return runtime.Invalid("after", "must be the cursor of an event of this batch")
}

// Close closes the log that it is reading.
func (r *Reader) Close() error {
	if r.current == nil {
		return nil
	}
	return r.current.Close()
}

// Next waits for the next event. After the end it returns io.EOF.
func (r *Reader) Next(ctx context.Context) (Event, error) {
	for !r.finished {
		id, batch, err := r.await(ctx)
		switch {
		case err != nil:
			return Event{}, err
		case batch != nil:
			r.finished = true
			return Event{Cursor: cursor(batch.Steps(), ""), Finished: batch}, nil
		}
		event, err := r.next(ctx, id)
		if !errors.Is(err, io.EOF) {
			return event, err
		}
		err = r.Close()
		r.position, r.after, r.current = r.position+1, "", nil
		if err != nil {
			return Event{}, err
		}
	}
	return Event{}, io.EOF
}

// await returns the execution at the reader's position once it exists, or the finished batch.
func (r *Reader) await(ctx context.Context) (runtime.ExecutionID, *runtime.Batch, error) {
	for {
		state, changed := r.source.State()
		if r.position < len(state.Executions) {
			return state.Executions[r.position], nil, nil
		}
		if state.Batch.State == runtime.BatchFinished {
			return "", &state.Batch, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", nil, context.Cause(ctx)
		}
	}
}

// next returns the next event of an execution, or io.EOF if there is none.
func (r *Reader) next(ctx context.Context, id runtime.ExecutionID) (Event, error) {
	if id == "" {
		return Event{}, io.EOF // removed by retention
	}
	if r.current == nil {
		opened, err := r.source.Open(ctx, id, r.after)
		switch {
		case runtime.CodeOf(err) == runtime.CodeExecutionNotFound:
			return Event{}, io.EOF
		case err != nil:
			return Event{}, err
		}
		r.current = opened
	}
	event, err := r.current.Next(ctx)
	if err != nil {
		return Event{}, err
	}
	state, _ := r.source.State()
	at := cursor(r.position, event.Cursor)
	if event.Kind == events.Finished {
		at = cursor(r.position+1, "")
	}
	return Event{Cursor: at, Case: state.Batch.First() + r.position, Execution: id, Event: event}, nil
}

// cursor returns the text of a cursor. An inner "" means the beginning of the execution there.
func cursor(position int, inner string) string { return strconv.Itoa(position) + "." + inner }
