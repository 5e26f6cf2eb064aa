package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/rockpool/rockpool/client"
)

// A follower copies what an execution prints, to its end.
type follower struct {
	Streams
	client    *client.Client
	execution string
	after     any         // the cursor to begin after; nil: the start
	raw       bool        // events as they are, one per line, rather than their output
	newline   string      // what ends a line on a terminal that is raw; "": "\n"
	lost      atomic.Bool // the connection is broken
}

// say tells the user something beside the output.
func (f *follower) say(format string, args ...any) {
	newline := f.newline
	if newline == "" {
		newline = "\n"
	}
	_, _ = fmt.Fprintf(f.Err, "rockpool: %s%s", strings.ReplaceAll(lines(fmt.Sprintf(format, args...)), "\n", newline), newline)
}

const eventsSubscription = `subscription($id: ID!, $after: Cursor) { executionEvents(executionId: $id, after: $after) {
	__typename cursor
	... on ExecutionStarted { at }
	... on ExecutionOutput { stream base64 at }
	... on ExecutionOutputLost { bytes reason }
	... on ExecutionFinished { execution { id outcome exitCode signal goneReason message } }
} }`

// follow copies the output until the end. A broken connection is taken up again
// after the last event that arrived whole.
func (f *follower) follow(ctx context.Context) (ended ending, err error) {
	variables := map[string]any{"id": f.execution, "after": f.after}
	finished := false
	var local error // what happened here, which no other connection mends
	handle := func(data json.RawMessage) error {
		f.lost.Store(false)
		var event executionEvent
		if local = event.decode(data); local == nil {
			local = f.write(&event)
		}
		if local != nil {
			return local
		}
		variables["after"] = event.Cursor
		if event.Type == "ExecutionFinished" {
			finished, ended = true, event.Execution
		}
		return nil
	}
	for !finished {
		before := variables["after"]
		err := client.Persist(ctx, serverPatience, client.Passing, func() error {
			err := f.client.Subscribe(ctx, client.Request{Query: eventsSubscription, Variables: variables}, handle)
			switch {
			case local != nil || finished:
				return nil // how the connection ended doesn't matter any more
			case err == nil:
				return errors.New("the server ended the stream early")
			case variables["after"] != before:
				return nil // it moved on: patience begins anew
			case client.Passing(err) && ctx.Err() == nil && !f.lost.Swap(true):
				f.say("the connection broke; trying to take it up again for %v, or until Ctrl-C", serverPatience)
			}
			return err
		})
		switch {
		case local != nil:
			return ending{}, local
		case err != nil && client.Passing(err):
			return ending{}, fmt.Errorf("the server can't be reached any more, and nobody knows how the program ended: %w", err)
		case err != nil:
			return ending{}, err
		}
	}
	return ended, nil
}

// write copies output to the stream that it was printed on, byte for byte.
func (f *follower) write(e *executionEvent) error {
	var err error
	switch {
	case f.raw:
		escaped, _ := escapeControls(e.text)
		_, err = f.Out.Write(append(escaped, '\n'))
	case e.Type == "ExecutionOutput" && e.Stream == "STDERR":
		_, err = f.Err.Write(e.Base64)
	case e.Type == "ExecutionOutput":
		_, err = f.Out.Write(e.Base64)
	case e.Type == "ExecutionOutputLost":
		f.say("%d bytes of output are missing here: %s", e.Bytes, e.Reason)
	}
	return err
}

// An executionEvent is what is asked of each event.
type executionEvent struct {
	Type      string `json:"__typename"`
	Cursor    string
	Stream    string
	Base64    []byte
	Bytes     int64
	Reason    string
	Execution ending

	text []byte // the event itself
}

func (e *executionEvent) decode(data json.RawMessage) error {
	var out struct{ ExecutionEvents json.RawMessage }
	err := json.Unmarshal(data, &out)
	if err == nil {
		err = json.Unmarshal(out.ExecutionEvents, e)
	}
	if err != nil {
		return fmt.Errorf("read an event: %w", err)
	}
	e.text = out.ExecutionEvents
	return nil
}
