package serve

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

const (
	// holdTail is for how long the beginning of a character waits for its rest:
	// far more than a program needs between two writes of a split character,
	// and less than a person notices.
	holdTail = 20 * time.Millisecond

	maxTail     = utf8.UTFMax - 1
	firstBuffer = 1<<10 - maxTail // most commands print little, or nothing; with the tail it is a size of the allocator's
	// Reads take whole pages, so that a pipe has them all free again.
	mostRead = 28 << 10 // less than MaxData
	wideRead = 60 << 10 // nearly all that a pipe holds: a program that floods waits for each read
	maxWide  = 32       // outlets that read so much at once: each takes 64 KiB
)

// An outlet reads one of a command's outputs and passes it on, whole
// characters together.
type outlet struct {
	stream byte
	emit   func(stream byte, data []byte)
	wide   *atomic.Int32 // how many outlets have more than firstBuffer

	mu    sync.Mutex // held while something is passed on, so that it stays in order
	tail  [maxTail]byte
	n     int // bytes of tail that are held back
	timer *time.Timer
}

// copy passes on what r gives until it ends or fails.
func (o *outlet) copy(r io.Reader) {
	buf := make([]byte, maxTail+firstBuffer)
	grown := false
	for {
		// Room is left before what is read for a tail that was held back.
		n, err := r.Read(buf[maxTail:])
		if n > 0 {
			o.pass(buf, n)
		}
		if err != nil {
			o.flush()
			return
		}
		if n == len(buf)-maxTail && !grown {
			grown = true
			most := mostRead
			if o.wide.Add(1) <= maxWide {
				most = wideRead
			}
			defer o.wide.Add(-1)
			buf = make([]byte, maxTail+most)
		}
	}
}

// framed cuts what was read at once into what one frame takes and the rest, which another does:
// whole characters together.
func framed(data []byte) (frame, rest []byte) {
	if len(data) <= maxTail+mostRead {
		return data, nil
	}
	half := len(data) / 2
	half -= unfinished(data[:half])
	return data[:half], data[half:]
}

// pass hands on the n bytes of buf that begin at maxTail, after what was held
// back, and holds back their own tail.
func (o *outlet) pass(buf []byte, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n > 0 {
		o.timer.Stop()
	}
	data := buf[maxTail-o.n : maxTail+n]
	copy(data, o.tail[:o.n])
	keep := unfinished(data)
	o.n = copy(o.tail[:], data[len(data)-keep:])
	if data = data[:len(data)-keep]; len(data) > 0 {
		o.emit(o.stream, data)
	}
	if o.n > 0 {
		if o.timer == nil {
			o.timer = time.AfterFunc(holdTail, o.flush)
		} else {
			o.timer.Reset(holdTail)
		}
	}
}

// flush hands on what was held back. Called late, when more came and another
// tail is held, it hands that on early, which does no harm.
func (o *outlet) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n > 0 {
		o.timer.Stop()
		o.emit(o.stream, o.tail[:o.n])
		o.n = 0
	}
}

// unfinished returns how many bytes at the end of data begin a character
// whose rest is missing.
func unfinished(data []byte) int {
	for n := 1; n <= min(maxTail, len(data)); n++ {
		if b := data[len(data)-n]; utf8.RuneStart(b) {
			if b >= utf8.RuneSelf && !utf8.FullRune(data[len(data)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}
