package executions

import (
	"context"
	"errors"
	"io/fs"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/output"
	"github.com/rockpool/rockpool/runtime/store"
)

const maxPageBytes = 16 << 20

// Output opens a page of the output that exists after a cursor, of about maxBytes; see
// [events.Page]. Close it.
func (s *Service) Output(ctx context.Context, id runtime.ExecutionID, after string, maxBytes int) (*events.Page, error) {
	if err := s.auth.See(ctx, "output", s.registry.Object(ctx, id)); err != nil {
		return nil, err
	}
	if err := runtime.Between("maxBytes", int64(maxBytes), 1, maxPageBytes, "bytes"); err != nil {
		return nil, err
	}
	r, err := s.registry.Events(ctx, id, after)
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
func (s *Service) OpenOutput(ctx context.Context, id runtime.ExecutionID, stream runtime.Stream) (*Output, error) {
	if err := s.auth.See(ctx, "output", s.registry.Object(ctx, id)); err != nil {
		return nil, err
	}
	running, x, err := s.registry.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	var content *output.Content
	if running != nil {
		x = running.Execution()
		content, err = running.Log().Content(ctx, stream)
	} else {
		content, err = output.OpenContent(ctx, s.registry.Logs.Place(id), stream)
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
