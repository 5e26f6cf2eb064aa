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
	maxPlaces    = 1024
	checkEvery   = 256 // records between checks whether the caller has left

	// Limits of the log that one call counts and searches. Each takes about 0.1 s at most.
	workBytes = 32 << 20
	workLines = 1_000_000
)

// An index contains places of a log, so that lines are found without reading the log before them.
// It is for one goroutine at a time.
type index struct {
	places  []place // ordered; the first is the log's beginning
	spacing int64
	tail    place              // everything before it has been counted
	begun   runtime.Characters // of the output before tail
}

func newIndex() *index { return &index{places: []place{{}}, spacing: firstSpacing} }

// count continues counting up to the log's end, or for workBytes or workLines. It returns the place
// that it reached, and whether that is the end. It returns ErrPosition if the log isn't the one
// counted before.
func (x *index) count(ctx context.Context, open func(position int64) (*output.Reader, error)) (tail place, all bool, err error) {
	r, err := open(x.tail.position)
	if err != nil {
		return place{}, false, err
	}
	defer r.Close()
	bytes, lines := x.tail.position+workBytes, x.tail.begun[0]+workLines
	for n := 1; x.tail.position < bytes && x.tail.begun[0] < lines; n++ {
		record, err := r.TryNext()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, output.ErrWait):
			return x.tail, true, nil
		case err == nil && n%checkEvery == 0 && ctx.Err() != nil:
			return place{}, false, context.Cause(ctx)
		case err != nil:
			return place{}, false, err
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
	if x.tail.position < x.places[len(x.places)-1].position+x.spacing {
		return
	}
	if len(x.places) == maxPlaces {
		half := x.places[:0]
		for i := 0; i < maxPlaces; i += 2 {
			half = append(half, x.places[i])
		}
		x.places = slices.Clip(half)
		x.spacing *= 2
		return
	}
	x.places = append(x.places, x.tail)
}

// before returns the last place before which at most n lines of a selection began.
func (x *index) before(selection int, n int64) place {
	i := sort.Search(len(x.places), func(i int) bool { return x.places[i].begun[selection] > n })
	return x.places[max(i-1, 0)]
}

// inside returns a place far behind another one, but in the same open lines, and well before their end; or
// the same place, if there is none.
func (x *index) inside(at place) place {
	end := sort.Search(len(x.places), func(i int) bool { return x.places[i].begun[0] > at.begun[0] })
	// The last place before the end of the lines may be just before it.
	for i := end - 2; i >= 0 && x.places[i].position > at.position; i-- {
		p := x.places[i]
		if (p.open[1] > 0) == (at.open[1] > 0) && (p.open[2] > 0) == (at.open[2] > 0) {
			return p
		}
	}
	return at
}
