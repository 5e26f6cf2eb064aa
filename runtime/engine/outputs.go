package engine

import (
	"context"
	"fmt"
	"net"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/output"
)

// A Record is what Output.Next returns.
type Record = output.Record

// An Output is what an execution had printed when it was opened, as bytes. It
// is for one goroutine. Close it.
type Output struct {
	*output.Content
	Execution runtime.Execution
	lost      int64
}

// Lost returns how many bytes it printed that aren't kept, on either stream.
func (o *Output) Lost() int64 { return o.lost }

// OpenOutput opens what an execution has printed until now, on one stream; 0
// stands for both, in the order in which they were printed.
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
		content, err = output.OpenContent(ctx, e.logs.Path(id), stream)
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

// DialAgent is of [files.Runners].
func (e *Engine) DialAgent(ctx context.Context, id runtime.RunnerID) (conn net.Conn, done func(), err error) {
	p, err := e.poolOf(id)
	if err != nil {
		return nil, nil, err
	}
	if _, err := p.Use(ctx, id); err != nil {
		return nil, nil, err
	}
	done = func() { p.Done(ctx, id) }
	if conn, err = e.cluster.Dial(ctx, id); err != nil {
		done()
		return nil, nil, fmt.Errorf("dial: %w", err)
	}
	return conn, done, nil
}
