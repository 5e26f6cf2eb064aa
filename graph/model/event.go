package model

import (
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/batch"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/executions"
)

// An ExecutionEvent is one of the five types below. Their fields read the engine's event only if
// the client selected them: text and base64 cost nothing if only the other one is selected.
type ExecutionEvent interface{ IsExecutionEvent() }

// The types of events, one for each kind.
type (
	ExecutionStarted    struct{ executionEvent }
	ExecutionOutput     struct{ executionEvent }
	ExecutionOutputLost struct{ executionEvent }
	ExecutionResized    struct{ executionEvent }
	ExecutionFinished   struct{ executionEvent }
)

type executionEvent struct{ events.Event }

// IsExecutionEvent marks a type of event.
func (executionEvent) IsExecutionEvent() {}

// Columns of the terminal.
func (e ExecutionResized) Columns() int { return e.Size.Columns }

// Rows of the terminal.
func (e ExecutionResized) Rows() int { return e.Size.Rows }

// NewExecutionEvent returns an event as the type of its kind.
func NewExecutionEvent(event events.Event) ExecutionEvent {
	e := executionEvent{event}
	switch event.Kind {
	case events.Started:
		return ExecutionStarted{e}
	case events.Output:
		return ExecutionOutput{e}
	case events.Lost:
		return ExecutionOutputLost{e}
	case events.Resized:
		return ExecutionResized{e}
	default:
		return ExecutionFinished{e}
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

// An OutputLine is a line of an execution's output, or lost bytes.
type OutputLine struct{ executions.Line }

// Stream is nil for lost bytes.
func (l OutputLine) Stream() *runtime.Stream {
	if l.Lost > 0 {
		return nil
	}
	return &l.Line.Stream
}

// Text is the line as valid UTF-8. An unfinished character of an open line waits for its rest.
func (l OutputLine) Text() string {
	if l.Open {
		return runtime.Text(l.Data[:len(l.Data)-runtime.Unfinished(l.Data)])
	}
	return runtime.Text(l.Data)
}

// LostCause is nil for a line.
func (l OutputLine) LostCause() *runtime.LossCause {
	if l.Lost == 0 {
		return nil
	}
	return &l.Cause
}

// An OutputLinePage is some lines of an execution's output.
type OutputLinePage struct{ executions.LinePage }

// Lines returns the lines of the page.
func (p OutputLinePage) Lines() []OutputLine {
	out := make([]OutputLine, len(p.LinePage.Lines))
	for i, line := range p.LinePage.Lines {
		out[i] = OutputLine{line}
	}
	return out
}

// Next is nil if nothing follows, now or later.
func (p OutputLinePage) Next() *int64 {
	if p.LinePage.Next == 0 {
		return nil
	}
	return &p.LinePage.Next
}
