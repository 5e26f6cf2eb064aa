package agent

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"
)

// UsageRequest requests the resource usage of the runner and its executions.
type UsageRequest struct{}

// Usage is the resource usage in a runner at one moment.
type Usage struct {
	Runner     Used                     `json:"runner"`               // of all commands since the runner's start; in some runners it includes the agent
	Executions map[string]ExecutionUsed `json:"executions,omitempty"` // running executions, by id
}

// An ExecutionUsed is the usage of an execution that started Wall ago.
type ExecutionUsed struct {
	Wall time.Duration `json:"wall"`
	Used
}

// Used is the usage so far and the resources that are held now. Unknown values are 0.
type Used struct {
	User          time.Duration `json:"user"`
	System        time.Duration `json:"system"`
	Memory        int64         `json:"memory,omitempty"`        // bytes held now
	PeakMemory    int64         `json:"peakMemory,omitempty"`    // bytes; peaks are known for executions only
	Processes     int           `json:"processes,omitempty"`     // processes and threads that exist now
	PeakProcesses int           `json:"peakProcesses,omitempty"` // processes and threads
}

// Bounds of an agent's report. The response has at most 64 KiB, since an agent has at most 256
// executions. The rest are a century, 2^60 bytes, and the number of Linux's process ids.
const (
	mostUsage     = 64 << 10
	mostTime      = 100 * 365 * 24 * time.Hour
	mostBytes     = 1 << 60
	mostProcesses = 1 << 22
)

// ReadUsage returns the resource usage in a runner. No value is negative, or so large that a sum of
// two overflows. It reads at most 64 KiB. It closes conn. An [*Error] is the agent's answer.
func ReadUsage(ctx context.Context, conn net.Conn) (Usage, error) {
	response, err := ask(ctx, atMost{conn, io.LimitReader(conn, mostUsage)}, Request{Usage: &UsageRequest{}})
	if err != nil {
		return Usage{}, err
	}
	if response.Usage == nil {
		return Usage{}, fmt.Errorf("%w: the response has no usage", ErrProtocol)
	}
	return *response.Usage, response.Usage.check()
}

// atMost is a connection with a limit on the bytes read from it.
type atMost struct {
	net.Conn
	from io.Reader
}

func (c atMost) Read(b []byte) (int, error) { return c.from.Read(b) }

// check returns ErrProtocol for values that no agent may send.
func (u Usage) check() error {
	if err := u.Runner.check(); err != nil {
		return err
	}
	for _, x := range u.Executions {
		if x.Wall < 0 || x.Wall > mostTime {
			return fmt.Errorf("%w: an execution reports %v of wall time", ErrProtocol, x.Wall)
		}
		if err := x.check(); err != nil {
			return err
		}
	}
	return nil
}

// check returns ErrProtocol for a value that is negative or above its bound.
func (u Used) check() error {
	for _, d := range []time.Duration{u.User, u.System} {
		if d < 0 || d > mostTime {
			return fmt.Errorf("%w: a usage of %v of processor time", ErrProtocol, d)
		}
	}
	for _, n := range []int64{u.Memory, u.PeakMemory} {
		if n < 0 || n > mostBytes {
			return fmt.Errorf("%w: a usage of %d bytes", ErrProtocol, n)
		}
	}
	for _, n := range []int{u.Processes, u.PeakProcesses} {
		if n < 0 || n > mostProcesses {
			return fmt.Errorf("%w: a usage of %d processes", ErrProtocol, n)
		}
	}
	return nil
}
