package model

import (
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/engine"
)

// An ExecutionEvent is one of the five types below. Their fields are those of
// the engine's event, read only if the client selected them: text and base64
// cost nothing to whom asks for the other.
type ExecutionEvent interface{ IsExecutionEvent() }

// ExecutionStarted is an engine.EventStarted.
type ExecutionStarted struct{ engine.Event }

// ExecutionOutput is an engine.EventOutput.
type ExecutionOutput struct{ engine.Event }

// ExecutionOutputLost is an engine.EventLost.
type ExecutionOutputLost struct{ engine.Event }

// ExecutionResized is an engine.EventResized.
type ExecutionResized struct{ engine.Event }

// ExecutionFinished is an engine.EventFinished.
type ExecutionFinished struct{ engine.Event }

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

// NewExecutionEvent returns an event as the type that tells its kind.
func NewExecutionEvent(event engine.Event) ExecutionEvent {
	switch event.Kind {
	case engine.EventStarted:
		return ExecutionStarted{event}
	case engine.EventOutput:
		return ExecutionOutput{event}
	case engine.EventLost:
		return ExecutionOutputLost{event}
	case engine.EventResized:
		return ExecutionResized{event}
	default:
		return ExecutionFinished{event}
	}
}

// An OutputPage is a part of an execution's output.
type OutputPage struct {
	Chunks    []engine.Event
	LostBytes int64
	LostCause *runtime.LossCause // of the first of them
	Cursor    string
	End       bool
}

// NewOutputPage returns a page of events of output, and of its loss.
func NewOutputPage(events []engine.Event, cursor string, end bool) OutputPage {
	page := OutputPage{Chunks: make([]engine.Event, 0, len(events)), Cursor: cursor, End: end}
	for _, event := range events {
		if event.Kind == engine.EventLost {
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
