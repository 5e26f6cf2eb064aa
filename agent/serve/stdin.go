package serve

import (
	"fmt"
	"io"
	"sync"

	"github.com/rockpool/rockpool/agent"
)

// announceStep is by how much the window moves before the client gets it.
const announceStep = agent.StdinWindow / 4

// A stdin is what a client sent and the program didn't read yet.
type stdin struct {
	tell func() // that the window moved

	mu       sync.Mutex // guards what is below
	more     *sync.Cond // something arrived, or it ended
	pending  []byte
	received int64 // offset after the last byte that arrived
	consumed int64 // offset after the last byte that the program's pipe took
	told     int64 // the limit that the client knows
	end      bool  // no more comes
	deaf     bool  // it isn't read: what comes is discarded
	over     bool  // the program is being ended, or has ended: no more room is announced
}

func newStdin(tell func()) *stdin {
	in := &stdin{tell: tell}
	in.more = sync.NewCond(&in.mu)
	return in
}

// feed gives the program what arrives, until the end or until it takes no more,
// which is the error. It closes w.
func (in *stdin) feed(w io.WriteCloser) error {
	var buf []byte
	for {
		chunk, ok := in.next(&buf)
		if !ok {
			in.finished(w)
			return nil
		}
		if _, err := w.Write(chunk); err != nil {
			_ = w.Close()
			return err
		}
		in.consume(int64(len(chunk)))
	}
}

// finished ends the program's stdin.
func (in *stdin) finished(w io.WriteCloser) {
	in.mu.Lock()
	deaf := in.deaf
	in.mu.Unlock()
	if ender, ok := w.(Ender); ok && !deaf {
		_ = ender.End()
		return
	}
	_ = w.Close()
}

// next waits for bytes and copies some to *buf, so that none is written with
// the mutex held.
func (in *stdin) next(buf *[]byte) (chunk []byte, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for len(in.pending) == 0 && !in.end && !in.deaf {
		*buf = nil
		in.more.Wait()
	}
	if in.deaf || len(in.pending) == 0 {
		return nil, false
	}
	*buf = append((*buf)[:0], in.pending[:min(len(in.pending), agent.MaxData)]...)
	in.pending = in.pending[len(*buf):]
	if len(in.pending) == 0 {
		in.pending = nil
	}
	return *buf, true
}

func (in *stdin) consume(n int64) {
	in.mu.Lock()
	in.consumed += n
	tell := in.consumed+agent.StdinWindow-in.told >= announceStep
	in.mu.Unlock()
	if tell {
		in.tell()
	}
}

// take adds what a client sent. It skips what is here already.
func (in *stdin) take(offset int64, data []byte) error {
	in.mu.Lock()
	end := offset + int64(len(data))
	switch {
	case offset > in.received:
		in.mu.Unlock()
		return fmt.Errorf("%w: stdin has a gap", agent.ErrProtocol)
	case end > in.consumed+agent.StdinWindow:
		in.mu.Unlock()
		return fmt.Errorf("%w: stdin beyond its window", agent.ErrProtocol)
	case end <= in.received || in.end:
		in.mu.Unlock()
		return nil
	}
	fresh := data[in.received-offset:]
	in.received = end
	if in.deaf {
		over := in.over
		in.mu.Unlock()
		if !over {
			in.consume(int64(len(fresh)))
		}
		return nil
	}
	in.pending = append(in.pending, fresh...)
	in.more.Signal()
	in.mu.Unlock()
	return nil
}

// finish records that no more comes.
func (in *stdin) finish() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.end = true
	in.more.Signal()
}

// close discards what is there and what comes. A program that lives on may
// have closed its stdin: then there is room for all that comes. When it is over,
// there is no more room: a client that waits for some gets the end instead.
func (in *stdin) close(over bool) {
	in.mu.Lock()
	in.deaf = true
	in.over = in.over || over
	in.pending = nil
	in.more.Signal()
	over = in.over
	if !over {
		in.consumed = in.received
	}
	in.mu.Unlock()
	if !over {
		in.tell()
	}
}

// window returns the frame with the offset up to which the client may send, if
// the client doesn't know it; a new stream doesn't.
func (in *stdin) window(fresh bool) []byte {
	in.mu.Lock()
	defer in.mu.Unlock()
	limit := in.consumed + agent.StdinWindow
	if !fresh && limit-in.told < announceStep {
		return nil
	}
	in.told = limit
	return agent.AppendStdinWindow(nil, in.received, limit)
}
