package client

import (
	"context"
	"encoding/json"
)

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
