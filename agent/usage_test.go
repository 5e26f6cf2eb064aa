package agent

import (
	"errors"
	"math"
	"testing"
)

// TestHostileUsage: an answer with a number that can't be is no answer.
func TestHostileUsage(t *testing.T) {
	minus := int64(-1)
	for name, usage := range map[string]*Usage{
		"no answer":              nil,
		"negative time":          {Runner: Used{User: -1}},
		"time that overflows":    {Runner: Used{System: math.MaxInt64}},
		"negative memory":        {Runner: Used{Memory: -1}},
		"negative processes":     {Executions: []ExecutionUsed{{Used: Used{Processes: -1}}}},
		"too many processes":     {Executions: []ExecutionUsed{{Used: Used{PeakProcesses: mostProcesses + 1}}}},
		"too much memory":        {Executions: []ExecutionUsed{{Used: Used{PeakMemory: mostBytes + 1}}}},
		"negative bytes":         {Executions: []ExecutionUsed{{Used: Used{BytesRead: &minus}}}},
		"before its own start":   {Executions: []ExecutionUsed{{Wall: -1}}},
		"longer than a century":  {Executions: []ExecutionUsed{{Wall: mostTime + 1}}},
		"the second one, at all": {Executions: []ExecutionUsed{{}, {Used: Used{BytesWritten: &minus}}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadUsage(t.Context(), play(t, frame(t, KindResponse, Response{Protocol: Protocol, Usage: usage})))
			if !errors.Is(err, ErrProtocol) {
				t.Errorf("error %v", err)
			}
		})
	}
}
