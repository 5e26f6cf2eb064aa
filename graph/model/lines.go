package model

import (
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/events"
)

// An OutputLine is a line of an execution's output, or lost bytes.
type OutputLine struct{ engine.Line }

// Stream is nil for lost bytes.
func (l OutputLine) Stream() *runtime.Stream {
	if l.Lost > 0 {
		return nil
	}
	return &l.Line.Stream
}

// Text is the line as valid UTF-8.
func (l OutputLine) Text() string { return events.Event{Data: l.Data}.Text() }

// LostCause is nil for a line.
func (l OutputLine) LostCause() *runtime.LossCause {
	if l.Lost == 0 {
		return nil
	}
	return &l.Cause
}

// An OutputLinePage is some lines of an execution's output.
type OutputLinePage struct{ engine.LinePage }

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
