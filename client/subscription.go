package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
)

// A Frame is a message of the protocol graphql-transport-ws:
// https://github.com/enisdenjo/graphql-ws/blob/master/PROTOCOL.md
type Frame struct {
	ID      string          `json:"id,omitempty"`
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

// Subscribe opens a connection for one subscription and passes each event to handle. It returns
// nil when the server completes the subscription. It returns an error when ctx ends, handle
// fails or the connection breaks; an *Error if the server refused the subscription.
func (c *Client) Subscribe(ctx context.Context, operation Request, handle func(json.RawMessage) error) error {
	conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(c.url, "http"),
		&websocket.DialOptions{HTTPClient: c.http, Subprotocols: []string{"graphql-transport-ws"}})
	if err != nil {
		return err
	}
	defer conn.CloseNow()
	conn.SetReadLimit(16 << 20)
	payload, err := encode(operation)
	if err != nil {
		return err
	}
	// The protocol allows subscribe only after the server's connection_ack.
	if err := wsjson.Write(ctx, conn, Frame{Type: "connection_init"}); err != nil {
		return err
	}
	for {
		var f Frame
		if err := wsjson.Read(ctx, conn, &f); err != nil {
			return err
		}
		var reply *Frame
		switch f.Type {
		case "connection_ack":
			reply = &Frame{ID: "1", Type: "subscribe", Payload: payload}
		case "ping":
			reply = &Frame{Type: "pong"}
		case "next":
			if err := next(f.Payload, handle); err != nil {
				return err
			}
		case "error":
			return refusal(f.Payload)
		case "complete":
			return nil
		}
		if reply != nil {
			if err := wsjson.Write(ctx, conn, reply); err != nil {
				return err
			}
		}
	}
}

// follow subscribes and passes each event to handle, decoded and as the server sent it. It returns as
// [Client.Subscribe] does.
func follow[E any](ctx context.Context, c *Client, operation Request, handle func(event E, raw json.RawMessage) error) error {
	return c.Subscribe(ctx, operation, func(data json.RawMessage) error {
		var fields map[string]json.RawMessage // only the subscription's
		err := json.Unmarshal(data, &fields)
		for _, raw := range fields {
			var event E
			if err = json.Unmarshal(raw, &event); err == nil {
				return handle(event, raw)
			}
		}
		return &Error{Message: fmt.Sprintf("read an event: %v", err)} // permanent: Passing reports false for an Error without a code
	})
}

// next passes an event's data to handle. It returns the first error of an event that has errors.
func next(payload json.RawMessage, handle func(json.RawMessage) error) error {
	var a answer
	if err := json.Unmarshal(payload, &a); err != nil {
		return fmt.Errorf("read an event: %w", err)
	}
	if err := a.into(nil); err != nil {
		return err
	}
	return handle(a.Data)
}

// refusal returns the first error in the payload of an error message.
func refusal(payload json.RawMessage) error {
	var all []*Error
	if err := json.Unmarshal(payload, &all); err != nil {
		return fmt.Errorf("read an error: %w", err)
	}
	if len(all) == 0 {
		return errors.New("the server ended the subscription without a reason")
	}
	return all[0]
}

// A FileChange is one change of an entry in a watched directory.
type FileChange struct {
	Type FileChangeType `json:"type"`
	Path *string        `json:"path"` // relative to the watched directory; nil for BEGAN and LOST
}

// FollowFiles subscribes to the changes in a directory of a runner, and passes each change to handle,
// BEGAN first. The empty path means /workspace. It returns as [Client.Subscribe] does. Changes between two
// subscriptions aren't reported: list the directory after the second subscription's BEGAN.
func (c *Client) FollowFiles(ctx context.Context, runner, path string, recursive bool, handle func(FileChange) error) error {
	variables := map[string]any{"runner": runner, "recursive": recursive}
	if path != "" {
		variables["path"] = path
	}
	return follow(ctx, c, Request{fileChanges_Operation, variables}, func(change FileChange, _ json.RawMessage) error { return handle(change) })
}

// A BatchEvent is one event of a batch. Fields that its Type lacks are zero.
type BatchEvent struct {
	Type      string `json:"__typename"` // BatchExecutionEvent or BatchFinished
	Cursor    string // FollowBatch continues after it
	CaseIndex *int   // nil for the build
	Event     CaseEvent
	Batch     Batch // of BatchFinished

	JSON json.RawMessage `json:"-"` // the event as the server sent it
}

// A CaseEvent is one event of an execution of a batch. Fields that its Type lacks are zero.
type CaseEvent struct {
	Type      string `json:"__typename"` // one of Event's types
	Stream    OutputStream
	Base64    []byte // of output
	Bytes     int64  // of lost output
	Reason    string // why output is lost
	Execution struct {
		Ending
		Comparison *CaseComparison // nil if the case has no expected output
		Usage      CaseUsage
	} // of ExecutionFinished
}

// CaseComparison is the result of comparing a case's output with the expected output.
type CaseComparison struct {
	Matches *bool  `json:"matches"` // nil if it didn't exit with 0, and so wasn't compared
	Message string `json:"message"` // why it doesn't match
}

// CaseUsage is what an execution of a batch used. PeakMemory is in bytes, nil if unknown.
type CaseUsage struct {
	WallMs      int64  `json:"wallMs"`
	OutputBytes int64  `json:"outputBytes"`
	PeakMemory  *int64 `json:"peakMemory"`
}

// FollowBatch subscribes to a batch's events after a cursor (nil for the first event on), and
// passes each event to handle. It returns as [Client.Subscribe] does. After a broken connection,
// call it again with the last event's cursor: no event is missing or repeated.
func (c *Client) FollowBatch(ctx context.Context, batch string, after *string, handle func(BatchEvent) error) error {
	operation := Request{batchEvents_Operation, map[string]any{"id": batch, "after": after}}
	return follow(ctx, c, operation, func(event BatchEvent, raw json.RawMessage) error {
		event.JSON = raw
		return handle(event)
	})
}
