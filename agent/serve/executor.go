// Package serve implements the agent's side of the protocol (package agent) on top of an Executor: the
// program inside a runner, or a fake in a test. It guarantees that output is neither lost nor
// repeated between a start and KindSettled, however often streams break, and that its memory use is
// bounded.
//
// It owns everything that doesn't depend on the executor: ids, output and its offsets, stdin, limits of
// time and output, and which client follows which execution.
package serve

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/rockpool/rockpool/agent"
)

// An Executor runs commands. Its methods must be safe for concurrent use. Errors that are an
// [*agent.Error] are sent to the client. The client gets every other error as agent.ErrInternal,
// without its text.
type Executor interface {
	// Start starts a command in its terminal, with the limits that the kernel enforces, and as root
	// if it is Privileged. The server itself enforces limits of time and output, and those that
	// Measure serves for.
	Start(start agent.Start) (Process, error)
	// Adopt takes over the descriptors of a cell, whose command it starts. It closes them at an error.
	Adopt(start agent.Start, cell []*os.File) (Process, error)
	// Now returns the usage of the whole runner, including commands that have ended.
	Now() agent.Used
	// Warm returns when the interpreter and its modules are loaded.
	Warm(warm agent.Warm) (agent.Warmed, error)

	// List calls each with every entry. It ends with each's error.
	List(list agent.ListDir, each func(agent.FileInfo) error) error
	// Stat describes the entry at path, or with follow the target of a link.
	Stat(path string, follow bool) (agent.FileInfo, error)
	// Open opens a regular file. The server reads at most the Size that it returns.
	Open(path string) (agent.FileInfo, io.ReadSeekCloser, error)
	// Move moves an entry and returns its new description. It never replaces an entry.
	Move(move agent.Move) (agent.FileInfo, error)
	// Update checks all of update and changes nothing. Apply carries it out; it is called at most
	// once. Content(i) returns the bytes of update.Write[i]. Apply calls it once for each file, in
	// order, and needn't read all of it. An error of such a reader ends apply, which returns it.
	Update(update agent.Update) (apply func(content func(i int) io.Reader) (agent.Updated, error), err error)

	// Search returns the matches of a search, sorted by path. It returns early when ctx ends; the result is then
	// ignored.
	Search(ctx context.Context, search agent.Search) (agent.Found, error)
	// Watch calls each without changes once it watches, then with changes. It returns when ctx ends
	// or each fails. Otherwise it returns an [*agent.Error] that says why it can't watch.
	Watch(ctx context.Context, watch agent.Watch, each func(agent.Changes) error) error
}

// A Process is one started command and everything that it starts.
type Process interface {
	// Pipes returns the server's ends of the command's pipes. Stdin is nil for a command without
	// one. The server reads both outputs until they end or fail. Close of stdin also ends a blocked
	// Write. If stdin is an Ender, the server calls End instead of Close when the client ended
	// stdin.
	Pipes() (stdin io.WriteCloser, stdout, stderr io.Reader)
	// StartedWarm reports whether it was started from a preloaded interpreter. If it wasn't, cold is the
	// reason; "" if none is loaded.
	StartedWarm() (warm bool, cold string)
	// Wait returns when the command itself has ended; processes that it started may continue. It is
	// called once.
	Wait() Status
	// Kill ends the command and everything that it started, with SIGTERM and, after grace, SIGKILL.
	// With a grace of 0 it sends SIGKILL immediately. It returns when no process is left; the
	// outputs end after what was printed. It may be called repeatedly, concurrently, and after the
	// end.
	Kill(grace time.Duration)
	// Resize gives the terminals another size. It does nothing without a terminal.
	Resize(size agent.Size)
	// Signal sends a signal to the command's process group, if that hasn't ended, and to the
	// foreground group of its terminal. It reports whether a signal of this name exists.
	Signal(name string) bool
	// Measure returns the current usage of all processes of the execution. It must not be called
	// after Close.
	Measure() Measure
	// Now returns the usage so far and the resources held now. It must not be called after Close.
	Now() agent.Used
	// Refused returns how many forks the kernel refused to this execution because the runner's
	// limit of processes was reached. It is 0 where the kernel doesn't count for each execution.
	// The server calls it periodically while the command runs, so an implementation may also use it
	// to sample other counters.
	Refused() int64
	// Excessive reports whether the execution holds too much kernel memory of the kinds that no
	// control group counts. One goroutine calls it periodically. An implementation needn't measure
	// in every call.
	Excessive() bool
	// Close frees the process's resources and returns its usage. It is called after Wait, a last
	// Kill and the end of both outputs.
	Close() Usage
}

// Status reports how a command ended: its exit code, or the name of the signal that killed it.
type Status struct {
	Code   int
	Signal string
}

// An Ender is a stdin that ends other than by Close, such as a terminal's.
type Ender interface{ End() error }

// Measure is an execution's usage so far, and its current number of processes and threads.
type Measure struct {
	CPU       time.Duration
	Processes int
}

// Usage is what a command and everything that it started have used.
type Usage struct {
	User, System time.Duration
	PeakMemory   int64 // bytes; at least that of the largest of its processes

	// Unknown values are 0 or nil.
	PeakProcesses           int
	BytesRead, BytesWritten *int64

	// PerCommand says that the kernel counted the fields below for this execution alone. Shared says
	// that the counts include other executions of the runner.
	PerCommand bool
	Shared     bool
	OOMKills   int64
	Refused    int64 // forks
}
