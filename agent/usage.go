package agent

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"
)

// AskUsage asks what the runner and its executions use.
type AskUsage struct{}

// Usage is what is used in a runner at a time.
type Usage struct {
	Runner     Used                     `json:"runner"`               // by all commands that ever ran there, and in some runners the agent
	Executions map[string]ExecutionUsed `json:"executions,omitempty"` // that run, by id
}

// An ExecutionUsed is what an execution has used since its start, Wall ago.
type ExecutionUsed struct {
	Wall time.Duration `json:"wall"`
	Used
}

// Used is what was used up to now, and what is held now. What is unknown is 0.
type Used struct {
	User          time.Duration `json:"user"`
	System        time.Duration `json:"system"`
	Memory        int64         `json:"memory,omitempty"`        // bytes, now
	PeakMemory    int64         `json:"peakMemory,omitempty"`    // bytes; of executions only, like all peaks
	Processes     int           `json:"processes,omitempty"`     // and threads, now
	PeakProcesses int           `json:"peakProcesses,omitempty"` // and threads
}

// Bounds of what an agent can say: of times a century, of bytes 2^60, of processes what Linux has ids
// for, and of the answer more than 256 executions take, which an agent has at most.
const (
	mostUsage     = 64 << 10
	mostTime      = 100 * 365 * 24 * time.Hour
	mostBytes     = 1 << 60
	mostProcesses = 1 << 22
)

// ReadUsage asks an agent what is used in its runner. No number of the answer is negative, or so
// large that a sum of two overflows, and it reads 64 KiB at most. It closes conn. An error that the agent answered is an
// [*Error]: ErrIncompatible says that the agent is too old.
func ReadUsage(ctx context.Context, conn net.Conn) (Usage, error) {
	x, response, err := open(ctx, atMost{conn, io.LimitReader(conn, mostUsage)}, Request{Usage: &AskUsage{}})
	if err != nil {
		return Usage{}, err
	}
	x.close()
	if response.Usage == nil {
		return Usage{}, fmt.Errorf("%w: no answer about the usage", ErrProtocol)
	}
	return *response.Usage, response.Usage.check()
}

// atMost is a connection of which only so much is read.
type atMost struct {
	net.Conn
	from io.Reader
}

func (c atMost) Read(b []byte) (int, error) { return c.from.Read(b) }

func (u Usage) check() error {
	if err := u.Runner.check(); err != nil {
		return err
	}
	for _, x := range u.Executions {
		if x.Wall < 0 || x.Wall > mostTime {
			return fmt.Errorf("%w: an execution that runs for %v", ErrProtocol, x.Wall)
		}
		if err := x.check(); err != nil {
			return err
		}
	}
	return nil
}

func (u Used) check() error {
	for _, d := range []time.Duration{u.User, u.System} {
		if d < 0 || d > mostTime {
			return fmt.Errorf("%w: %v of processor time", ErrProtocol, d)
		}
	}
	for _, n := range []int64{u.Memory, u.PeakMemory} {
		if n < 0 || n > mostBytes {
			return fmt.Errorf("%w: %d bytes", ErrProtocol, n)
		}
	}
	for _, n := range []int{u.Processes, u.PeakProcesses} {
		if n < 0 || n > mostProcesses {
			return fmt.Errorf("%w: %d processes", ErrProtocol, n)
		}
	}
	return nil
}
