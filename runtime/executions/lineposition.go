package executions

import (
	"bytes"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/output"
)

// interruption is how much the other stream may print before a line's end. After more than that,
// the rest begins a new line. It bounds how far a page reads on to find the ends of its lines.
const interruption = 64 << 10

// A place is a position in a log, between two records, with the counts of the lines before it.
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

// split advances the place over a record, and passes its lines to a sink, if there is one.
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
