package model

import (
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/executions"
)

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
