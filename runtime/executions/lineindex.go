package executions

import (
	"context"
	"errors"
	"io"
	"slices"
	"sort"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/output"
)

// Limits of an index. A page in the middle reads at most spacing bytes of the log before it. In a
// longer log the places are further apart.
const (
	firstSpacing = 256 << 10
	maxPositions = 1024
	checkEvery   = 256 // records between checks whether the caller has left

	// Limits of the log that one call counts and searches. Each takes about 0.1 s at most.
	workBytes = 32 << 20
	workLines = 1_000_000
)

// An index contains places of a log, so that lines are found without reading the log before them.
// It is for one goroutine at a time.
type index struct {
	positions []position // ordered; the first is the log's beginning
	spacing   int64
	tail      position           // everything before it has been counted
	begun     runtime.Characters // of the output before tail
}

func newIndex() *index { return &index{positions: []position{{}}, spacing: firstSpacing} }

// count continues counting up to the log's end, or for workBytes or workLines. It returns the place
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

// keep adds the tail to the places if it is far enough from the last one. If there are too many, it
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

// before returns the last place before which at most n lines of a selection began.
func (x *index) before(selection int, n int64) position {
	i := sort.Search(len(x.positions), func(i int) bool { return x.positions[i].begun[selection] > n })
	return x.positions[max(i-1, 0)]
}

// inside returns a place far behind another one, but in the same open lines, and well before their end; or
// the same place, if there is none.
func (x *index) inside(at position) position {
	end := sort.Search(len(x.positions), func(i int) bool { return x.positions[i].begun[0] > at.begun[0] })
	// The last place before the end of the lines may be just before it.
	for i := end - 2; i >= 0 && x.positions[i].position > at.position; i-- {
		p := x.positions[i]
		if (p.open[1] > 0) == (at.open[1] > 0) && (p.open[2] > 0) == (at.open[2] > 0) {
			return p
		}
	}
	return at
}
