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

// Bounds of a page of output.
const (
	maxPageBytes = 16 << 20 // of data, for maxBytes
	maxChunks    = 4096     // events in a page
	chunkBytes   = 100      // charge for each chunk in addition to its data, since programs may print tiny ones
)

// Output returns the events of output, and of its loss, that exist after a cursor. They have about
// maxBytes in total. There are at most 4096 of them, and at least one if any exists. Next is the
// cursor after them. end says that the execution has ended and this is its last output. It calls
// charge with the data of each output event. An error of charge ends the page, and is returned only
// if the page is empty.
func (s *Service) Output(ctx context.Context, id runtime.ExecutionID, after string, maxBytes int, charge func(data []byte) error) (chunks []events.Event, next string, end bool, err error) {
	if err := s.auth.See(ctx, "output", s.registry.Object(ctx, id)); err != nil {
		return nil, "", false, err
	}
	if err := runtime.Between("maxBytes", int64(maxBytes), 1, maxPageBytes, "bytes"); err != nil {
		return nil, "", false, err
	}
	r, err := s.registry.Events(ctx, id, after)
	if err != nil {
		return nil, "", false, err
	}
	defer r.Close()
	next = r.At()
	for size := 0; ; {
		event, err := r.TryNext()
		switch {
		case errors.Is(err, events.ErrWait):
			return chunks, next, false, nil
		case err != nil:
			return nil, "", false, err
		case event.Kind == events.Finished:
			return chunks, event.Cursor, true, nil
		case event.Kind == events.Output:
			if size += len(event.Data) + chunkBytes; len(chunks) == maxChunks || size > maxBytes+chunkBytes && len(chunks) > 0 {
				return chunks, next, false, nil
			}
			if err := charge(event.Data); err != nil {
				if len(chunks) > 0 {
					return chunks, next, false, nil
				}
				return nil, "", false, err
			}
			chunks = append(chunks, event)
		case event.Kind == events.Lost:
			if len(chunks) == maxChunks {
				return chunks, next, false, nil
			}
			chunks = append(chunks, event)
		}
		next = event.Cursor
	}
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
