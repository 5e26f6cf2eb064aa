package plain

import (
	"context"
	"io"

	"github.com/rockpool/rockpool/agent"
)

// An Exec is a cluster's own way to run a command in one runner. It is called
// from many goroutines.
type Exec interface {
	// Exec runs a command to its end and returns its exit code. It may lose what
	// the command printed last, return without a code (then with an error), or
	// leave the command running when ctx ends: this package expects all of that.
	// What it does with the writers after it returned is ignored.
	Exec(ctx context.Context, c Command) (code int, err error)
}

// A Command is what an Exec runs.
type Command struct {
	Argv           []string
	Terminal       bool // descriptors 0 to 2 are a terminal; nothing comes to Stderr
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Resize         <-chan agent.Size // of the terminal
}
