package engine

import (
	"context"
	"errors"
	"io/fs"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/batch"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/output"
	"github.com/rockpool/rockpool/runtime/store"
)

// Events returns a reader of an execution's events after a cursor; "" is the beginning. Close it.
func (e *Engine) Events(ctx context.Context, id runtime.ExecutionID, after string) (*events.Reader, error) {
	at, err := events.Parse(id, after)
	if err != nil {
		return nil, err
	}
	s, x, err := e.find(ctx, id)
	if err != nil {
		return nil, err
	}
	r, err := events.Open(at, events.Source{Session: s, Execution: x, Log: e.logs.Place(id), Known: e.store.HasExecution})
	if errors.Is(err, fs.ErrNotExist) { // retention has just removed it
		return nil, store.NotFound(id)
	}
	return r, err
}

// BatchEvents returns a reader of a batch's events after a cursor; "" is the beginning. Close it.
func (e *Engine) BatchEvents(ctx context.Context, id runtime.BatchID, after string) (*batch.Reader, error) {
	source := batch.Source{Open: e.Events}
	if l := e.batches.get(id); l != nil {
		source.State = l.State
		return batch.Open(source, after)
	}
	b, err := e.store.Batch(ctx, id)
	if err != nil {
		return nil, err
	}
	ids, err := e.store.BatchExecutionIDs(ctx, id)
	if err != nil {
		return nil, err
	}
	state := &batch.State{Batch: b}
	for number := b.First(); number < b.Progress.Begun; number++ {
		state.Executions = append(state.Executions, ids[number])
	}
	source.State = func() (*batch.State, <-chan struct{}) { return state, nil }
	return batch.Open(source, after)
}

// maxPageBytes bounds the data of a page of output.
const maxPageBytes = 16 << 20

// Output opens a page of the output that exists after a cursor, of about maxBytes; see
// [events.Page]. Close it.
func (e *Engine) Output(ctx context.Context, id runtime.ExecutionID, after string, maxBytes int) (*events.Page, error) {
	if err := runtime.Between("maxBytes", int64(maxBytes), 1, maxPageBytes, "bytes"); err != nil {
		return nil, err
	}
	r, err := e.Events(ctx, id, after)
	if err != nil {
		return nil, err
	}
	return events.NewPage(r, maxBytes), nil
}

// A Record is a piece of output that Output.Next returns.
type Record = output.Record

// An Output is what an execution had printed when it was opened. It is for one goroutine. Close it.
type Output struct {
	*output.Content
	Execution runtime.Execution
	lost      int64
}

// Lost returns how many printed bytes, on either stream, aren't stored.
func (o *Output) Lost() int64 { return o.lost }

// OpenOutput opens what an execution has printed so far on one stream; 0 means both, in the order in
// which they were printed.
func (e *Engine) OpenOutput(ctx context.Context, id runtime.ExecutionID, stream runtime.Stream) (*Output, error) {
	s, x, err := e.find(ctx, id)
	if err != nil {
		return nil, err
	}
	var content *output.Content
	if s != nil {
		x = s.Execution()
		content, err = s.Log().Content(ctx, stream)
	} else {
		content, err = output.OpenContent(ctx, e.logs.Place(id), stream)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, store.NotFound(id) // retention has just removed it
	}
	if err != nil {
		return nil, err
	}
	o := &Output{Content: content, Execution: x, lost: content.Lost()}
	if x.State == runtime.ExecutionFinished {
		o.lost += max(0, x.Usage.OutputBytes-content.End())
	}
	return o, nil
}
