package execution

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/rockpool/rockpool/cli/connection"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
)

// A Follower copies what an execution prints, to its end.
type Follower struct {
	Out, Err  io.Writer
	Client    *client.Client
	Execution string
	After     *string // the cursor to begin after; nil: the start
	Raw       bool    // events as they are, one per line, rather than their output

	Tail []byte // the last that it printed on stderr

	newline string      // what ends a line on a terminal that is raw; "": "\n"
	lost    atomic.Bool // the connection is broken
}

// tailBytes bounds Follower.Tail.
const tailBytes = 8 << 10

// Say tells the user something beside the output.
func (f *Follower) Say(format string, args ...any) {
	newline := f.newline
	if newline == "" {
		newline = "\n"
	}
	_, _ = fmt.Fprintf(f.Err, "rockpool: %s%s", strings.ReplaceAll(output.Lines(fmt.Sprintf(format, args...)), "\n", newline), newline)
}

// Follow copies the output until the end. A broken connection is taken up again
// after the last event that arrived whole.
func (f *Follower) Follow(ctx context.Context) (ended client.Ending, err error) {
	finished := false
	var local error // what happened here, which no other connection mends
	handle := func(event client.Event) error {
		f.lost.Store(false)
		if local = f.write(event); local != nil {
			return local
		}
		f.After = &event.Cursor
		if event.Type == "ExecutionFinished" {
			finished, ended = true, event.Execution
		}
		return nil
	}
	for !finished {
		before := f.After
		err := client.Persist(ctx, connection.Patience, client.Passing, func() error {
			err := f.Client.Follow(ctx, f.Execution, f.After, handle)
			switch {
			case local != nil || finished:
				return nil // how the connection ended doesn't matter any more
			case err == nil:
				return errors.New("the server ended the stream early")
			case f.After != before:
				return nil // it moved on: patience begins anew
			case client.Passing(err) && ctx.Err() == nil && !f.lost.Swap(true):
				f.Say("the connection broke; trying to take it up again for %v, or until Ctrl-C", connection.Patience)
			}
			return err
		})
		switch {
		case local != nil:
			return client.Ending{}, local
		case err != nil && client.Passing(err):
			return client.Ending{}, fmt.Errorf("%w; once the server is back, `rockpool exec show %s` says how the program ended", connection.Lost(f.Client, err), f.Execution)
		case err != nil:
			return client.Ending{}, err
		}
	}
	return ended, nil
}

// write copies output to the stream that it was printed on, byte for byte.
func (f *Follower) write(e client.Event) error {
	var err error
	switch {
	case f.Raw:
		escaped, _ := output.Escape(e.JSON)
		_, err = f.Out.Write(append(escaped, '\n'))
	case e.Type == "ExecutionOutput" && e.Stream == "STDERR":
		f.Tail = append(f.Tail, e.Base64...)
		f.Tail = f.Tail[max(0, len(f.Tail)-tailBytes):]
		_, err = f.Err.Write(e.Base64)
	case e.Type == "ExecutionOutput":
		_, err = f.Out.Write(e.Base64)
	case e.Type == "ExecutionOutputLost":
		f.Say("%d bytes of output are missing here: %s", e.Bytes, e.Reason)
	}
	return err
}
