package serve

import (
	"fmt"
	"io"
	"sync"

	"github.com/rockpool/rockpool/agent"
)

// announceStep is by how many bytes the window must move before the client is sent the new one.
const announceStep = agent.StdinWindow / 4

// A stdin buffers what a client sent and the program hasn't read. Its methods are safe for
// concurrent use, except that only one goroutine may call feed.
type stdin struct {
	moved func() // called without mu when the window has moved

	mu         sync.Mutex // guards the fields below
	more       *sync.Cond // signalled when data arrived, or stdin ended
	pending    []byte     // received, and not yet written to the program's pipe
	received   int64      // offset after the last byte that arrived
	consumed   int64      // offset after the last byte that was written to the program's pipe
	announced  int64      // the limit that the client knows
	end        bool       // the client ended stdin
	discarding bool       // the program doesn't read: data is discarded
	over       bool       // the program is being killed, or has ended: the window no longer moves
}

func newStdin(moved func()) *stdin {
	in := &stdin{moved: moved}
	in.more = sync.NewCond(&in.mu)
	return in
}

// feed writes what arrives to the program, and closes w. It returns after the end of stdin, or with
// the error of a write.
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

func (in *stdin) finished(w io.WriteCloser) {
	in.mu.Lock()
	deaf := in.discarding
	in.mu.Unlock()
	if ender, ok := w.(Ender); ok && !deaf {
		_ = ender.End()
		return
	}
	_ = w.Close()
}

// next waits for bytes and copies some to *buf, so that they can be written without holding the
// mutex.
func (in *stdin) next(buf *[]byte) (chunk []byte, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for len(in.pending) == 0 && !in.end && !in.discarding {
		*buf = nil
		in.more.Wait()
	}
	if in.discarding || len(in.pending) == 0 {
		return nil, false
	}
	*buf = append((*buf)[:0], in.pending[:min(len(in.pending), agent.MaxData)]...)
	in.pending = in.pending[len(*buf):]
	if len(in.pending) == 0 {
		in.pending = nil
	}
	return *buf, true
}

// consume records n bytes that were written to the program or discarded. The client is notified
// only when the window has moved by announceStep.
func (in *stdin) consume(n int64) {
	in.mu.Lock()
	in.consumed += n
	tell := in.consumed+agent.StdinWindow-in.announced >= announceStep
	in.mu.Unlock()
	if tell {
		in.moved()
	}
}

// receive adds data from a client. It skips bytes that have arrived before.
func (in *stdin) receive(offset int64, data []byte) error {
	in.mu.Lock()
	end := offset + int64(len(data))
	switch {
	case offset > in.received:
		in.mu.Unlock()
		return fmt.Errorf("%w: the client left a gap in stdin", agent.ErrProtocol)
	case end > in.consumed+agent.StdinWindow:
		in.mu.Unlock()
		return fmt.Errorf("%w: the client sent stdin beyond its window", agent.ErrProtocol)
	case end <= in.received || in.end:
		in.mu.Unlock()
		return nil
	}
	fresh := data[in.received-offset:]
	in.received = end
	// The window must still move, or the client would wait forever. After the command's end it gets
	// the exit instead.
	if in.discarding {
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

func (in *stdin) finish() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.end = true
	in.more.Signal()
}

// close discards buffered data and all further data. Over says that the program has ended or is
// being killed. If it isn't over, the program has only closed its stdin, and the window stays open
// for data to discard. If it is over, the window no longer moves, so that a waiting client gets the
// exit instead.
func (in *stdin) close(over bool) {
	in.mu.Lock()
	in.discarding = true
	in.over = in.over || over
	in.pending = nil
	in.more.Signal()
	over = in.over
	if !over {
		in.consumed = in.received
	}
	in.mu.Unlock()
	if !over {
		in.moved()
	}
}

// window returns a frame with the current window, if it differs from the one that the client has.
// Fresh is for a new stream, whose client has none.
func (in *stdin) window(fresh bool) []byte {
	in.mu.Lock()
	defer in.mu.Unlock()
	limit := in.consumed + agent.StdinWindow
	if !fresh && limit-in.announced < announceStep {
		return nil
	}
	in.announced = limit
	return agent.AppendStdinWindow(nil, in.received, limit)
}
