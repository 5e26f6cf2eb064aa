package poseidon

import (
	"sync"

	"github.com/rockpool/rockpool/graph/transport/peers"
	"github.com/rockpool/rockpool/runtime"
)

const (
	maxInput   = 4 << 20 // bytes of stdin that the program hasn't taken
	inputPiece = 4 << 10 // bytes that are read, or handed on, at once
	firstInput = 1 << 10 // bytes of the first buffer
)

// An input is the stdin that its program hasn't taken. It waits for nothing, so that its connection is always read: else
// nobody would notice its end. Its methods are safe for concurrent use.
type input struct {
	fail func(error)   // ends the connection; called once at most
	more chan struct{} // a hint that there is more

	mu      sync.Mutex // guards what follows
	hold    *peers.Hold
	waiting []byte
	held    int // bytes of the buffer that has waiting
	failed  error
}

func newInput(hold *peers.Hold) *input { return &input{more: make(chan struct{}, 1), hold: hold} }

// Write implements io.Writer. It never fails: what has no room fails the connection, and what comes then is dropped.
func (in *input) Write(p []byte) (int, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.failed != nil {
		return len(p), nil
	}
	if in.failed = in.add(p); in.failed != nil {
		in.fail(in.failed)
		return len(p), nil
	}
	select {
	case in.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

// add appends p. The caller holds mu.
func (in *input) add(p []byte) error {
	size := len(in.waiting) + len(p)
	if size > maxInput {
		return runtime.Errorf(runtime.CodeLimitExceeded, "the program doesn't read its stdin: at most %d MiB of it may wait", maxInput>>20)
	}
	if size > cap(in.waiting) {
		if err := in.resize(min(max(2*size, firstInput), maxInput)); err != nil {
			return err
		}
	}
	in.waiting = append(in.waiting, p...)
	return nil
}

// resize moves what waits to a buffer of so many bytes. The caller holds mu.
func (in *input) resize(to int) error {
	if err := in.hold.Grow(int64(to - in.held)); err != nil {
		return err
	}
	in.hold.Shrink(int64(in.held - to))
	in.waiting, in.held = append(make([]byte, 0, to), in.waiting...), to
	return nil
}

// take moves what waits into p, as much as fits, and returns how much that is.
func (in *input) take(p []byte) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := copy(p, in.waiting)
	if in.waiting = in.waiting[n:]; len(in.waiting) == 0 {
		in.hold.Shrink(int64(in.held))
		in.waiting, in.held = nil, 0
	}
	return n
}

// refused returns why it has failed; nil: it hasn't.
func (in *input) refused() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.failed
}
