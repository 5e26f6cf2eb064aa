package executions

import (
	"cmp"
	"context"
	"errors"
	"io/fs"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/output"
	"github.com/rockpool/rockpool/runtime/store"
)

// A LineQuery selects at most MaxLines lines of an output, beginning with number From or after the first
// Skip ones. A nil From or Skip is left out.
type LineQuery struct {
	From, Skip *int64
	MaxLines   int
	Last       bool           // the last MaxLines of them
	Stream     runtime.Stream // 0 means both
	Containing *string
	MatchCase  bool
}

const maxContaining = 1000 // bytes

// parse validates q and fills in its defaults.
func (q LineQuery) parse() (lineQuery, error) {
	out := lineQuery{From: 1, First: q.MaxLines, Last: q.Last, Stream: q.Stream, MatchCase: q.MatchCase}
	if err := runtime.Between("maxLines", int64(q.MaxLines), 1, maxLines, "lines"); err != nil {
		return out, err
	}
	switch {
	case q.Last && (q.From != nil || q.Skip != nil || q.Containing != nil):
		return out, runtime.Invalid("last", "can't be combined with from, skip or containing")
	case q.From != nil && q.Skip != nil:
		return out, runtime.Invalid("skip", "can't be combined with from")
	case q.From != nil && *q.From < 1:
		return out, runtime.Invalid("from", "must be at least 1: lines are numbered from 1")
	case q.From != nil:
		out.From = *q.From
	case q.Skip != nil && *q.Skip < 0:
		return out, runtime.Invalid("skip", "must be at least 0")
	case q.Skip != nil:
		out.Skip = *q.Skip
	}
	if q.Containing != nil {
		out.Containing = *q.Containing
		return out, runtime.Between("containing", int64(len(out.Containing)), 1, maxContaining, "bytes")
	}
	return out, nil
}

// Lines returns lines of what an execution has printed so far.
func (s *Service) Lines(ctx context.Context, id runtime.ExecutionID, query LineQuery) (LinePage, error) {
	if err := s.auth.See(ctx, "output", s.registry.Object(ctx, id)); err != nil {
		return LinePage{}, err
	}
	q, err := query.parse()
	if err != nil {
		return LinePage{}, err
	}
	r := s.registry
	running, x, err := r.Find(ctx, id)
	if err != nil {
		return LinePage{}, err
	}
	from := events.Source{Session: running, Execution: x, Log: r.Logs.Location(id), Known: r.Store.HasExecution}
	source := lineSource{ID: id, Open: func(position int64) (*output.Reader, error) { return output.OpenReader(from.Log, position) }}
	if running != nil {
		x, source.Open = running.Execution(), running.Log().Reader
	}
	source.Tenant = x.Tenant
	if x.State == runtime.ExecutionFinished {
		source.Ended, source.Bytes, source.After = true, x.Usage.OutputBytes, x.Timestamps.FinishedAt.Sub(x.Timestamps.StartedAt)
	}
	page, err := r.lines.Read(ctx, source, q)
	if errors.Is(err, fs.ErrNotExist) { // retention has just removed it
		return LinePage{}, store.NotFound(id)
	}
	if err != nil {
		return LinePage{}, err
	}
	end := events.At(id, page.Position, page.Offset, page.Begun)
	page.Cursor = end.String()
	for i, line := range page.Lines {
		page.Lines[i].At = x.Timestamps.StartedAt.Add(line.Since)
		if line.Lost > 0 {
			page.Lines[i].Cause = lossCause(x, line, line.Offset == page.Offset, end, from)
		}
	}
	return page, nil
}

// lossCause returns why the first of a line's lost bytes were lost. last says that they come after the
// log's end.
func lossCause(x runtime.Execution, line Line, last bool, end events.Cursor, from events.Source) runtime.LossCause {
	cause, _ := x.LossAt(line.Offset)
	if !last {
		return cmp.Or(cause, runtime.LossUnknown)
	}
	r, err := events.Open(end, from)
	if err != nil { // there is no valid record
		return cmp.Or(cause, runtime.LossDamaged)
	}
	defer r.Close()
	event, err := r.TryNext()
	if err != nil || event.Kind != events.Lost {
		return cmp.Or(cause, runtime.LossUnknown)
	}
	return event.Cause
}
