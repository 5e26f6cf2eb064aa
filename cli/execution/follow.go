package execution

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
)

// A Follower copies the output of an execution until it ends.
type Follower struct {
	Out, Err  io.Writer
	Client    *client.Client
	Execution string
	After     *string // cursor to start after; nil for the start
	Events    bool    // print events as JSON, one per line, instead of their output

	newline string      // line end on a raw terminal; "" means "\n"
	lost    atomic.Bool // the connection is broken
}

// Report prints a message for the user to Err.
func (f *Follower) Report(format string, args ...any) {
	newline := f.newline
	if newline == "" {
		newline = "\n"
	}
	_, _ = fmt.Fprintf(f.Err, "rockpool: %s%s", strings.ReplaceAll(output.Lines(fmt.Sprintf(format, args...)), "\n", newline), newline)
}

// Follow copies the output until the execution ends, and returns how it ended. If the connection
// breaks, it reconnects and continues after the last complete event. It returns an error if it
// can't reconnect within command.Patience, if writing fails, or if ctx ends.
func (f *Follower) Follow(ctx context.Context) (ended client.Ending, err error) {
	finished := false
	var local error // an error on this side: reconnecting doesn't help
	handle := func(event client.Event) error {
		f.lost.Store(false)
		if err := f.write(event); err != nil {
			local = &output.WriteError{Err: err}
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
		err := client.Persist(ctx, command.Patience, client.Passing, func() error {
			err := f.Client.Follow(ctx, f.Execution, f.After, handle)
			switch {
			case local != nil || finished:
				return nil // the end of the connection no longer matters
			case err == nil:
				return errors.New("the server ended the stream early")
			case f.After != before:
				return nil // there was progress: patience restarts
			case client.Passing(err) && ctx.Err() == nil && !f.lost.Swap(true):
				f.Report("the connection broke; trying to reconnect for %v (Ctrl-C stops)", command.Patience)
			}
			return err
		})
		switch {
		case local != nil:
			return client.Ending{}, local
		case err != nil && client.Passing(err):
			return client.Ending{}, fmt.Errorf("%w; when the server is back, `rockpool exec show %s` shows how the program ended", command.Lost(f.Client, err), f.Execution)
		case err != nil:
			return client.Ending{}, err
		}
	}
	return ended, nil
}

// write copies output to the same stream, byte for byte.
func (f *Follower) write(e client.Event) error {
	var err error
	switch {
	case f.Events:
		escaped, _ := output.Escape(e.JSON)
		_, err = f.Out.Write(append(escaped, '\n'))
	case e.Type == "ExecutionOutput" && e.Stream == "STDERR":
		_, err = f.Err.Write(e.Base64)
	case e.Type == "ExecutionOutput":
		_, err = f.Out.Write(e.Base64)
	case e.Type == "ExecutionOutputLost":
		f.Report("%d bytes of output are missing here: %s", e.Bytes, e.Reason)
	}
	return err
}
