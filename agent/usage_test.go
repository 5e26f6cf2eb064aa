package agent

import (
	"errors"
	"fmt"
	"io"
	"math"
	"testing"
)

// A response with an impossible number is an error.
func TestHostileUsage(t *testing.T) {
	for name, usage := range map[string]*Usage{
		"no answer":                            nil,
		"negative time":                        {Runner: Used{User: -1}},
		"time that overflows":                  {Runner: Used{System: math.MaxInt64}},
		"negative memory":                      {Runner: Used{Memory: -1}},
		"negative processes":                   {Executions: map[string]ExecutionUsed{"x": {Used: Used{Processes: -1}}}},
		"too many processes":                   {Executions: map[string]ExecutionUsed{"x": {Used: Used{PeakProcesses: mostProcesses + 1}}}},
		"too much memory":                      {Executions: map[string]ExecutionUsed{"x": {Used: Used{PeakMemory: mostBytes + 1}}}},
		"negative wall time":                   {Executions: map[string]ExecutionUsed{"x": {Wall: -1}}},
		"longer than a century":                {Executions: map[string]ExecutionUsed{"x": {Wall: mostTime + 1}}},
		"negative memory of another execution": {Executions: map[string]ExecutionUsed{"x": {}, "y": {Used: Used{Memory: -1}}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadUsage(t.Context(), play(t, frame(t, KindResponse, Response{Protocol: Protocol, Usage: usage})))
			if !errors.Is(err, ErrProtocol) {
				t.Errorf("error %v, want %v", err, ErrProtocol)
			}
		})
	}
}

// The response has room for all executions of an agent. The client doesn't read a longer one.
func TestUsageResponseIsBounded(t *testing.T) {
	largest := ExecutionUsed{Wall: mostTime, Used: Used{
		User: mostTime, System: mostTime, Memory: mostBytes, PeakMemory: mostBytes, Processes: mostProcesses, PeakProcesses: mostProcesses,
	}}
	for n, want := range map[int]error{256: nil, 512: io.ErrUnexpectedEOF} {
		all := map[string]ExecutionUsed{}
		for i := range n {
			all[fmt.Sprintf("x-%024d", i)] = largest
		}
		usage, err := ReadUsage(t.Context(), play(t, frame(t, KindResponse, Response{Protocol: Protocol, Usage: &Usage{Executions: all}})))
		if !errors.Is(err, want) || err == nil && len(usage.Executions) != n {
			t.Errorf("%d executions: %d, %v", n, len(usage.Executions), err)
		}
	}
}
