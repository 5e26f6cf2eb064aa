// Package lines numbers the lines of what an execution printed, finds any of
// them again, and searches them.
//
// A line is of one stream. It ends at its newline, where bytes are lost, where
// the output ends, and where the other stream has printed more than Interruption
// bytes since the line began. Lines are numbered from 1 on by their first bytes,
// in the order in which these were printed on either stream. Lost bytes take one
// number, as a line of no stream. So a number depends only on what was printed
// before, not on how the log cut it into records: it means the same after more
// output, after a restart and after the execution's end.
package lines

import (
	"bytes"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/output"
)

// Interruption is how much the other stream may print before a line's end: what
// comes after more than that begins a new line. It bounds how far a page of lines
// reads on for their ends.
const Interruption = 64 << 10

// A place is a position in a log, between two records, and what is known of the
// lines there.
type place struct {
	position int64
	offset   int64    // output bytes of both streams before it
	begun    [3]int64 // lines that began before it: on both streams, on standard output, on standard error; lost bytes are in each
	open     [3]int64 // by stream; 0: no line is open; else 1 and the bytes that the other stream printed since that began
}

// A sink receives lines in pieces. Of each stream one line is open at a time.
type sink interface {
	begin(at place, stream runtime.Stream, since time.Duration) // at counts it
	add(stream runtime.Stream, data []byte)                     // without the newline
	end(stream runtime.Stream, newline bool)
	lose(at place, offset, lost int64, since time.Duration) // at counts it
}

// take goes past a record; to may be nil.
func (p *place) take(r output.Record, to sink) {
	if r.Offset < p.offset {
		return // no log has that
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
	if p.open[other] += int64(len(r.Data)); p.open[other] > 1+Interruption {
		p.end(other, false, to)
	}
}

func (p *place) split(r output.Record, to sink) {
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

func (p *place) end(stream runtime.Stream, newline bool, to sink) {
	p.open[stream] = 0
	if to != nil {
		to.end(stream, newline)
	}
}

// lose goes past bytes that are lost.
func (p *place) lose(lost int64, since time.Duration, to sink) {
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
