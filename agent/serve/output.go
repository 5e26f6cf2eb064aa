package serve

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

const (
	// holdTail is how long the beginning of a character waits for its remaining bytes. That is far
	// longer than a program needs between two writes of a split character, and shorter than a
	// person notices.
	holdTail = 20 * time.Millisecond

	maxTail     = utf8.UTFMax - 1
	firstBuffer = 1<<10 - maxTail // bytes; most commands print little. With the tail it is a size class of Go's allocator
	// Reads are whole pages, so that the pipe has all of them free again.
	mostRead = 28 << 10 // bytes; less than MaxData
	wideRead = 60 << 10 // bytes; nearly a full pipe, since a program that floods waits for each read
	maxWide  = 32       // outlets with such a buffer at a time: each takes 64 KiB
)

// An outlet reads one of a command's outputs and emits it without splitting UTF-8 characters.
type outlet struct {
	stream byte // 1 stdout, 2 stderr
	emit   func(stream byte, data []byte)
	wide   *atomic.Int32 // number of outlets with a buffer larger than firstBuffer

	mu    sync.Mutex // held while output is emitted, so that it stays in order; guards the fields below
	tail  [maxTail]byte
	n     int         // bytes in tail
	timer *time.Timer // flushes tail
}

// copy emits the bytes of r until r ends or fails.
func (o *outlet) copy(r io.Reader) {
	buf := make([]byte, maxTail+firstBuffer)
	grown := false
	for {
		// The space before maxTail is for a held tail.
		n, err := r.Read(buf[maxTail:])
		if n > 0 {
			o.pass(buf, n)
		}
		if err != nil {
			o.flush()
			return
		}
		// A full first buffer means that the command prints much. Only such a command gets a large
		// one.
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

// framed splits data into what fits into one frame and the rest, which fits into another. It
// doesn't split characters.
func framed(data []byte) (frame, rest []byte) {
	if len(data) <= maxTail+mostRead {
		return data, nil
	}
	half := len(data) / 2
	half -= unfinished(data[:half])
	return data[:half], data[half:]
}

// pass emits the held tail and the n bytes of buf at maxTail. It holds an incomplete character at
// their end.
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

// flush emits the held tail. If it runs late and a newer tail is held, it emits that one early,
// which is harmless.
func (o *outlet) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n > 0 {
		o.timer.Stop()
		o.emit(o.stream, o.tail[:o.n])
		o.n = 0
	}
}

// unfinished returns the number of bytes at the end of data that are an incomplete character.
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
