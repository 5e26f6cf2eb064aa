package model

import (
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/batch"
	"github.com/rockpool/rockpool/runtime/events"
)

// An ExecutionEvent is one of the five types below. Their fields read the engine's event only if
// the client selected them: text and base64 cost nothing if only the other one is selected.
type ExecutionEvent interface{ IsExecutionEvent() }

// ExecutionStarted is an events.Started.
type ExecutionStarted struct{ events.Event }

// ExecutionOutput is an events.Output.
type ExecutionOutput struct{ events.Event }

// ExecutionOutputLost is an events.Lost.
type ExecutionOutputLost struct{ events.Event }

// ExecutionResized is an events.Resized.
type ExecutionResized struct{ events.Event }

// ExecutionFinished is an events.Finished.
type ExecutionFinished struct{ events.Event }

// IsExecutionEvent marks a type of event.
func (ExecutionStarted) IsExecutionEvent() {}

// IsExecutionEvent marks a type of event.
func (ExecutionOutput) IsExecutionEvent() {}

// IsExecutionEvent marks a type of event.
func (ExecutionOutputLost) IsExecutionEvent() {}

// IsExecutionEvent marks a type of event.
func (ExecutionResized) IsExecutionEvent() {}

// IsExecutionEvent marks a type of event.
func (ExecutionFinished) IsExecutionEvent() {}

// Columns of the terminal.
func (e ExecutionResized) Columns() int { return e.Size.Columns }

// Rows of the terminal.
func (e ExecutionResized) Rows() int { return e.Size.Rows }

// NewExecutionEvent returns an event as the type of its kind.
func NewExecutionEvent(event events.Event) ExecutionEvent {
	switch event.Kind {
	case events.Started:
		return ExecutionStarted{event}
	case events.Output:
		return ExecutionOutput{event}
	case events.Lost:
		return ExecutionOutputLost{event}
	case events.Resized:
		return ExecutionResized{event}
	default:
		return ExecutionFinished{event}
	}
}

// A BatchEvent is one of the two types below.
type BatchEvent interface{ IsBatchEvent() }

// A BatchExecutionEvent is an event of one of a batch's executions.
type BatchExecutionEvent struct {
	Cursor      string
	CaseIndex   *int // nil means the build
	ExecutionID runtime.ExecutionID
	Event       ExecutionEvent
}

// BatchFinished is a batch's last event.
type BatchFinished struct {
	Cursor string
	Batch  runtime.Batch
}

// IsBatchEvent marks a type of event.
func (BatchExecutionEvent) IsBatchEvent() {}

// IsBatchEvent marks a type of event.
func (BatchFinished) IsBatchEvent() {}

// NewBatchEvent returns an event as the type of its kind.
func NewBatchEvent(event batch.Event) BatchEvent {
	if event.Finished != nil {
		return BatchFinished{event.Cursor, *event.Finished}
	}
	return BatchExecutionEvent{event.Cursor, CaseIndex(event.Case), event.Execution, NewExecutionEvent(event.Event)}
}

// CaseIndex returns the index of a case; nil for a build.
func CaseIndex(number int) *int {
	if number == runtime.BuildCase {
		return nil
	}
	return &number
}

// An OutputPage is a part of an execution's output.
type OutputPage struct {
	Chunks    []events.Event
	LostBytes int64
	LostCause *runtime.LossCause // of the first lost bytes
	Cursor    string
	End       bool
}

// NewOutputPage returns a page of output events and losses.
func NewOutputPage(all []events.Event, cursor string, end bool) OutputPage {
	page := OutputPage{Chunks: make([]events.Event, 0, len(all)), Cursor: cursor, End: end}
	for _, event := range all {
		if event.Kind == events.Lost {
			if page.LostCause == nil {
				page.LostCause = &event.Cause
			}
			page.LostBytes += event.Bytes
			continue
		}
		page.Chunks = append(page.Chunks, event)
	}
	return page
}
