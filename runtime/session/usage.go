package session

import (
	"sync"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/execution"
)

// shown is what callers saw of an execution's usage: it never falls back, at the end neither.
type shown struct {
	mu    sync.Mutex // guards what follows
	usage runtime.Usage
	ended bool
}

// Use takes in what the agent says that the execution has used so far, and returns what to show;
// false: its end is known, and has the final figures.
func (s *Session) Use(used agent.Used, wall time.Duration) (runtime.Usage, bool) {
	s.shown.mu.Lock()
	defer s.shown.mu.Unlock()
	if s.shown.ended {
		return runtime.Usage{}, false
	}
	s.shown.usage = execution.AtLeast(runtime.Usage{
		Wall: wall, User: used.User, System: used.System, OutputBytes: s.record.received.Load(),
		Memory: used.Memory, PeakMemory: used.PeakMemory, Processes: used.Processes, PeakProcesses: used.PeakProcesses,
		BytesRead: used.BytesRead, BytesWritten: used.BytesWritten,
	}, s.shown.usage)
	return s.shown.usage, true
}

// end returns the final usage, by what the agent said at the end.
func (s *shown) end(final runtime.Usage) runtime.Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	return execution.AtLeast(final, s.usage)
}
