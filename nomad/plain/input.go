package plain

import (
	"io"
	"sync"
)

// An input is the stdin of a script: what the script is told, then what the
// program is given, then the word that ends the script, which goes before all
// that the program left. A Read blocks while there is nothing.
type input struct {
	mu      sync.Mutex // guards what follows
	changed *sync.Cond
	told    []byte // to the script
	given   []byte // to the program: of the Write that waits
	deaf    bool   // no more is given
	ended   bool   // the rest of told is the last
}

func newInput(told []byte) *input {
	in := &input{told: told}
	in.changed = sync.NewCond(&in.mu)
	return in
}

// Read implements io.Reader.
func (in *input) Read(p []byte) (int, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for len(in.told) == 0 && (len(in.given) == 0 || in.deaf) && !in.ended {
		in.changed.Wait()
	}
	switch {
	case len(in.told) > 0:
		n := copy(p, in.told)
		in.told = in.told[n:]
		return n, nil
	case len(in.given) > 0 && !in.deaf:
		n := copy(p, in.given)
		in.given = in.given[n:]
		in.changed.Broadcast()
		return n, nil
	default:
		return 0, io.EOF
	}
}

// give gives b to the program, and returns when it was read.
func (in *input) give(b []byte) (int, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.deaf {
		return 0, io.ErrClosedPipe
	}
	in.given = b
	in.changed.Broadcast()
	for len(in.given) > 0 && !in.deaf {
		in.changed.Wait()
	}
	n := len(b) - len(in.given)
	in.given = nil
	if n < len(b) {
		return n, io.ErrClosedPipe
	}
	return n, nil
}

// tell tells the script something.
func (in *input) tell(b []byte) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.ended {
		in.told = append(in.told, b...)
		in.changed.Broadcast()
	}
}

// stop ends a give that blocks, and those to come.
func (in *input) stop() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.deaf = true
	in.changed.Broadcast()
}

// end ends the stdin, after what was told.
func (in *input) end() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.deaf, in.ended = true, true
	in.changed.Broadcast()
}

// atEnd reports whether the stdin was ended.
func (in *input) atEnd() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.ended
}
