package poseidon

import (
	"sync"
	"time"

	"github.com/rockpool/rockpool/graph/transport/peers"
	"github.com/rockpool/rockpool/runtime"
)

const (
	maxInput   = 4 << 20          // bytes of stdin that the program hasn't taken
	inputBlock = 4 << 10          // bytes that are read, kept or handed on at once
	inputStall = 10 * time.Second // a program that takes no stdin for so long, while there is no room for more, ends
)

// An input is the stdin that its program hasn't taken. It keeps blocks, of which the first peers.FreeBody bytes aren't
// counted: a key that is pressed always has room. Its methods are safe for concurrent use.
type input struct {
	stall time.Duration   // see inputStall
	ended <-chan struct{} // closed when the connection ends
	fail  func(error)     // ends the connection; called once at most
	more  chan struct{}   // a hint that there is more
	taken chan struct{}   // a hint that the program has taken some

	mu     sync.Mutex // guards what follows
	hold   *peers.Hold
	blocks [][]byte // none is empty; all but the last were full
	failed error
}

func newInput(hold *peers.Hold, stall time.Duration) *input {
	return &input{stall: stall, more: make(chan struct{}, 1), taken: make(chan struct{}, 1), hold: hold}
}

// Write implements io.Writer. While there is no room it waits, as long as the program takes some. Else it doesn't wait: its
// caller has to read the end of the connection. It never returns an error: what finds no room fails the connection, and what
// comes after its end is dropped.
func (in *input) Write(p []byte) (int, error) {
	for rest := p; ; {
		n, err := in.add(rest)
		if n > 0 {
			hint(in.more)
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

// hint leaves a hint, unless there is one.
func hint(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// add keeps what has room of p, and returns how much that is, and why the rest has none.
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
		return runtime.Errorf(runtime.CodeLimitExceeded, "stdin comes faster than the program reads it: at most %d MiB may wait", maxInput>>20)
	}
	if to > peers.FreeBody {
		if err := in.hold.Grow(inputBlock); err != nil {
			return err
		}
	}
	in.blocks = append(in.blocks, make([]byte, 0, inputBlock))
	return nil
}

// take moves what waits into p, at most a block, and returns how much that is.
func (in *input) take(p []byte) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.blocks) == 0 {
		return 0
	}
	n := copy(p, in.blocks[0])
	if in.blocks[0] = in.blocks[0][n:]; len(in.blocks[0]) == 0 {
		if len(in.blocks)*inputBlock > peers.FreeBody {
			in.hold.Shrink(inputBlock)
		}
		in.blocks[0] = nil
		in.blocks = in.blocks[1:]
	}
	hint(in.taken)
	return n
}

// refuse fails the connection.
func (in *input) refuse(err error) {
	in.mu.Lock()
	in.failed = err
	in.mu.Unlock()
	in.fail(err)
}

// refused returns why it has failed; nil: it hasn't.
func (in *input) refused() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.failed
}
