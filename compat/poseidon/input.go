package poseidon

import (
	"sync"
	"time"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/syncs"
)

const (
	maxInput   = 4 << 20          // bytes of stdin that the program hasn't read
	inputBlock = 4 << 10          // bytes that are received, kept or passed on at a time
	inputStall = 10 * time.Second // while the buffer is full, a connection fails if the program reads nothing for so long
)

// An input buffers the stdin that its program hasn't read. It keeps blocks. The first
// clients.FreeBody bytes aren't charged to the caller, so that a keystroke always has space. Its
// methods are safe for concurrent use.
type input struct {
	stall time.Duration   // see inputStall
	ended <-chan struct{} // closed when the connection ends
	fail  func(error)     // ends the connection; called at most once
	more  syncs.Hint      // bytes were added
	taken syncs.Hint      // the program has read some

	mu     sync.Mutex // guards the fields below
	hold   *clients.Reservation
	blocks [][]byte // none is empty; all except the last were filled
	failed error
}

// newInput returns an empty buffer. The caller sets ended and fail before the first Write.
func newInput(hold *clients.Reservation, stall time.Duration) *input {
	return &input{stall: stall, more: syncs.NewHint(), taken: syncs.NewHint(), hold: hold}
}

// Write implements io.Writer. While the buffer is full it waits, as long as the program keeps
// reading. If the program stalls it fails the connection instead, because its caller must read the
// connection's end. It never returns an error: bytes after the failure are dropped.
func (in *input) Write(p []byte) (int, error) {
	for rest := p; ; {
		n, err := in.add(rest)
		if n > 0 {
			in.more.Send()
		}
		if rest = rest[n:]; err == nil {
			return len(p), nil
		}
		stalled := time.NewTimer(in.stall)
		select {
		case <-in.taken:
			stalled.Stop()
		case <-in.ended:
			stalled.Stop()
			return len(p), nil
		case <-stalled.C:
			in.refuse(err)
			return len(p), nil
		}
	}
}

// add keeps the bytes of p that fit. It returns their number, and why the others don't fit.
func (in *input) add(p []byte) (n int, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.failed != nil {
		return len(p), nil
	}
	for n < len(p) {
		last := len(in.blocks) - 1
		if last < 0 || len(in.blocks[last]) == cap(in.blocks[last]) {
			if err := in.grow(); err != nil {
				return n, err
			}
			last++
		}
		block := in.blocks[last]
		some := min(cap(block)-len(block), len(p)-n)
		in.blocks[last] = append(block, p[n:n+some]...)
		n += some
	}
	return n, nil
}

// grow adds a block. The caller holds mu.
func (in *input) grow() error {
	to := (len(in.blocks) + 1) * inputBlock
	if to > maxInput {
		return runtime.Errorf(runtime.CodeLimitExceeded, "stdin arrives faster than the program reads it: at most %d MiB are buffered", maxInput>>20)
	}
	if to > clients.FreeBody {
		if err := in.hold.Grow(inputBlock); err != nil {
			return err
		}
	}
	in.blocks = append(in.blocks, make([]byte, 0, inputBlock))
	return nil
}

// take moves at most one block of buffered bytes to p, and returns their number.
func (in *input) take(p []byte) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.blocks) == 0 {
		return 0
	}
	n := copy(p, in.blocks[0])
	if in.blocks[0] = in.blocks[0][n:]; len(in.blocks[0]) == 0 {
		if len(in.blocks)*inputBlock > clients.FreeBody {
			in.hold.Shrink(inputBlock)
		}
		in.blocks[0] = nil
		in.blocks = in.blocks[1:]
	}
	in.taken.Send()
	return n
}

// refuse fails the connection.
func (in *input) refuse(err error) {
	in.mu.Lock()
	in.failed = err
	in.mu.Unlock()
	in.fail(err)
}

// refused returns why the connection failed; nil if it hasn't.
func (in *input) refused() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.failed
}
