package client

import (
	"context"
	"encoding/json"
)

// A BatchEvent is what happened to a batch. Fields that its type doesn't have are zero.
type BatchEvent struct {
	Type      string `json:"__typename"` // BatchExecutionEvent or BatchFinished
	Cursor    string // to follow on from
	CaseIndex *int   // nil: the build's
	Event     CaseEvent
	Batch     Batch // of BatchFinished

	JSON json.RawMessage `json:"-"` // the event as it came
}

// A CaseEvent is what happened to an execution of a batch. Fields that its type doesn't have
// are zero.
type CaseEvent struct {
	Type      string `json:"__typename"` // as Event has it
	Stream    OutputStream
	Base64    []byte // of output
	Bytes     int64  // of lost output
	Reason    string // why they are lost
	Execution struct {
		Ending
		Usage CaseUsage
	} // of ExecutionFinished
}

// CaseUsage is what an execution of a batch used.
type CaseUsage struct {
	WallMs      int64  `json:"wallMs"`
	OutputBytes int64  `json:"outputBytes"`
	PeakMemory  *int64 `json:"peakMemory"`
}

// FollowBatch subscribes to a batch's events after a cursor (nil: all), and passes each to
// handle. It returns as [Client.Subscribe] does; a caller whose connection broke follows on
// from the last cursor, and misses nothing.
func (c *Client) FollowBatch(ctx context.Context, batch string, after *string, handle func(BatchEvent) error) error {
	operation := Request{batchEvents_Operation, map[string]any{"id": batch, "after": after}}
	return c.Subscribe(ctx, operation, func(data json.RawMessage) error {
		var out struct{ BatchEvents json.RawMessage }
		var event BatchEvent
		err := json.Unmarshal(data, &out)
		if err == nil {
			err = json.Unmarshal(out.BatchEvents, &event)
		}
		if err != nil {
			return &Error{Message: "read an event: " + err.Error()} // another connection doesn't help
		}
		event.JSON = out.BatchEvents
		return handle(event)
	})
}
