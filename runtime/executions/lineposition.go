package executions

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sort"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/output"
)

// interruption is how much the other stream may print before a line's end. After more than that,
// the rest begins a new line. It bounds how far a page reads on to find the ends of its lines.
const interruption = 64 << 10

// A position is an offset between two records of a log, with the counts of the lines before it.
//
// A line belongs to one stream. It ends at its newline, at lost bytes, at the end of the output,
// and when the other stream has printed more than interruption bytes since the line began. Lines
// are numbered from 1 by their first bytes, in the order in which these were printed on either
// stream. A range of lost bytes takes one number, as a line of no stream. So a line's number
// depends only on the output before it, not on how the log divides it into records. It is stable:
// it stays the same after more output, after a restart and after the execution's end.
type position struct {
	position int64
	offset   int64    // output bytes of both streams before it
	begun    [3]int64 // lines begun before it: in total, on stdout, on stderr; each includes lost bytes
	open     [3]int64 // by stream; 0 means no open line; otherwise 1 plus the bytes of the other stream since it began
}

// A sink receives lines in pieces. At most one line of each stream is open at a time.
type sink interface {
	begin(at position, stream runtime.Stream, since time.Duration) // at already counts the line
	add(stream runtime.Stream, data []byte)                        // without the newline
	end(stream runtime.Stream, newline bool)
	lose(at position, offset, lost int64, since time.Duration) // at already counts the loss
}

// advance moves past a record. to may be nil.
func (p *position) advance(r output.Record, to sink) {
	if r.Offset < p.offset {
		return // impossible in a log
	}
	p.lose(r.Offset-p.offset, r.Since, to)
	p.offset = r.End()
	if len(r.Data) == 0 {
		return
	}
	p.split(r, to)
	other := runtime.Stdout + runtime.Stderr - r.Stream
	if p.open[other] == 0 {
		return
	}
	if p.open[other] += int64(len(r.Data)); p.open[other] > 1+interruption {
		p.end(other, false, to)
	}
}

// split advances the position over a record, and passes its lines to a sink, if there is one.
func (p *position) split(r output.Record, to sink) {
	for data := r.Data; len(data) > 0; {
		if p.open[r.Stream] == 0 {
			p.open[r.Stream] = 1
			p.begun[0]++
			p.begun[r.Stream]++
			if to != nil {
				to.begin(*p, r.Stream, r.Since)
			}
		}
		piece, rest, ends := bytes.Cut(data, newline)
		if to != nil {
			to.add(r.Stream, piece)
		}
		if ends {
			p.end(r.Stream, true, to)
		}
		data = rest
	}
}

var newline = []byte("\n")

// end closes a stream's open line. to may be nil.
func (p *position) end(stream runtime.Stream, newline bool, to sink) {
	p.open[stream] = 0
	if to != nil {
		to.end(stream, newline)
	}
}

func (p *position) lose(lost int64, since time.Duration, to sink) {
	if lost <= 0 {
		return
	}
	for _, stream := range []runtime.Stream{runtime.Stdout, runtime.Stderr} {
		if p.open[stream] > 0 {
			p.end(stream, false, to)
		}
	}
	for i := range p.begun {
		p.begun[i]++
	}
	if to != nil {
		to.lose(*p, p.offset, lost, since)
	}
	p.offset += lost
}

// Limits of an index. A page in the middle reads at most spacing bytes of the log before it. In a
// longer log the positions are further apart.
const (
	firstSpacing = 256 << 10
	maxPositions = 1024
	checkEvery   = 256 // records between checks whether the caller has left

	// Limits of the log that one call counts and searches. Each takes about 0.1 s at most.
	workBytes = 32 << 20
	workLines = 1_000_000
)

// An index contains positions of a log, so that lines are found without reading the log before them.
// It is for one goroutine at a time.
type index struct {
	positions []position // ordered; the first is the log's beginning
	spacing   int64
	tail      position           // everything before it has been counted
	begun     runtime.Characters // of the output before tail
}

func newIndex() *index { return &index{positions: []position{{}}, spacing: firstSpacing} }

// count continues counting up to the log's end, or for workBytes or workLines. It returns the position
// that it reached, and whether that is the end. It returns ErrPosition if the log isn't the one
// counted before.
func (x *index) count(ctx context.Context, open func(position int64) (*output.Reader, error)) (tail position, all bool, err error) {
	r, err := open(x.tail.position)
	if err != nil {
		return position{}, false, err
	}
	defer r.Close()
	bytes, lines := x.tail.position+workBytes, x.tail.begun[0]+workLines
	for n := 1; x.tail.position < bytes && x.tail.begun[0] < lines; n++ {
		record, err := r.TryNext()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, output.ErrWait):
			return x.tail, true, nil
		case err == nil && n%checkEvery == 0 && ctx.Err() != nil:
			return position{}, false, context.Cause(ctx)
		case err != nil:
			return position{}, false, err
		}
		if record.Offset != x.tail.offset { // output is missing
			x.begun = runtime.Characters{}
		}
		if len(record.Data) > 0 {
			x.begun.Add(record.Stream, record.Data)
		}
		x.tail.advance(record, nil)
		x.tail.position = r.Position()
		x.keep()
	}
	return x.tail, false, nil
}

// keep adds the tail to the positions if it is far enough from the last one. If there are too many, it
// drops every second.
func (x *index) keep() {
	if x.tail.position < x.positions[len(x.positions)-1].position+x.spacing {
		return
	}
	if len(x.positions) == maxPositions {
		half := x.positions[:0]
		for i := 0; i < maxPositions; i += 2 {
			half = append(half, x.positions[i])
		}
		x.positions = slices.Clip(half)
		x.spacing *= 2
		return
	}
	x.positions = append(x.positions, x.tail)
}

// before returns the last position before which at most n lines of a selection began.
func (x *index) before(selection int, n int64) position {
	i := sort.Search(len(x.positions), func(i int) bool { return x.positions[i].begun[selection] > n })
	return x.positions[max(i-1, 0)]
}

// inside returns a position far behind another one, but in the same open lines, and well before their end; or
// the same position, if there is none.
func (x *index) inside(at position) position {
	end := sort.Search(len(x.positions), func(i int) bool { return x.positions[i].begun[0] > at.begun[0] })
	// The last position before the end of the lines may be just before it.
	for i := end - 2; i >= 0 && x.positions[i].position > at.position; i-- {
		p := x.positions[i]
		if (p.open[1] > 0) == (at.open[1] > 0) && (p.open[2] > 0) == (at.open[2] > 0) {
			return p
		}
	}
	return at
}
