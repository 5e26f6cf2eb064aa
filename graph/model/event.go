package model

import "github.com/rockpool/rockpool/runtime/engine"

// An ExecutionEvent is one of the four types below. Their fields are those of
// the engine's event, read only if the client selected them: text and base64
// cost nothing to whom asks for the other.
type ExecutionEvent interface{ IsExecutionEvent() }

// ExecutionStarted is an engine.EventStarted.
type ExecutionStarted struct{ engine.Event }

// ExecutionOutput is an engine.EventOutput.
type ExecutionOutput struct{ engine.Event }

// ExecutionOutputLost is an engine.EventLost.
type ExecutionOutputLost struct{ engine.Event }

// ExecutionFinished is an engine.EventFinished.
type ExecutionFinished struct{ engine.Event }

// IsExecutionEvent marks a type of event.
func (ExecutionStarted) IsExecutionEvent() {}

// IsExecutionEvent marks a type of event.
func (ExecutionOutput) IsExecutionEvent() {}

// IsExecutionEvent marks a type of event.
func (ExecutionOutputLost) IsExecutionEvent() {}

// IsExecutionEvent marks a type of event.
func (ExecutionFinished) IsExecutionEvent() {}

// NewExecutionEvent returns an event as the type that tells its kind.
func NewExecutionEvent(event engine.Event) ExecutionEvent {
	switch event.Kind {
	case engine.EventStarted:
		return ExecutionStarted{event}
	case engine.EventOutput:
		return ExecutionOutput{event}
	case engine.EventLost:
		return ExecutionOutputLost{event}
	default:
		return ExecutionFinished{event}
	}
}

// An OutputPage is a part of an execution's output.
type OutputPage struct {
	Chunks []engine.Event
	Cursor string
	End    bool
}
