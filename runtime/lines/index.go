package lines

import (
	"context"
	"errors"
	"io"
	"slices"
	"sort"

	"github.com/rockpool/rockpool/runtime/output"
)

// Bounds of an index. A page in the middle reads at most spacing bytes of the log
// before it; a longer log has its places further apart.
const (
	firstSpacing = 256 << 10
	maxPlaces    = 1024
	checkEvery   = 256 // records, after which a scan asks whether its caller left

	// After so much of the log a call counts and searches no further. Each takes some 0.1 s at most.
	workBytes = 32 << 20
	workLines = 1_000_000
)

// An index knows some places of a log, by which lines are found without reading
// what is before them. It is for one goroutine at a time.
type index struct {
	places  []place // ordered; the first is the log's beginning
	spacing int64
	tail    place // up to here it was counted
}

func newIndex() *index { return &index{places: []place{{}}, spacing: firstSpacing} }

// count goes on counting, to the log's end or for workBytes or workLines. It returns the place
// that it came to, and whether that was the end. ErrPosition: the log isn't that which was
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
		x.tail.take(record, nil)
		x.tail.position = r.Position()
		x.keep()
	}
	return x.tail, false, nil
}

// keep adds the tail to the places, if it is far enough from the last. With too
// many of them every second one goes.
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
