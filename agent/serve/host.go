// Package serve is the agent's side of the protocol (see package agent) over
// any Host: the program in a runner, or a fake in a test. It owns what doesn't
// depend on the place: ids, output and its offsets, stdin, limits, and which
// client follows which execution. It guarantees that output is never lost or repeated
// between a start and KindSettled, however often streams break, and that what
// it holds is bounded.
package serve

import (
	"context"
	"io"
	"time"

	"github.com/rockpool/rockpool/agent"
)

// A Host is where commands run. Its methods are called from many goroutines.
// Errors that are an [*agent.Error] go to the client; others become
// agent.ErrInternal without their text.
type Host interface {
	// Start starts a command, in its terminal, within what Limits has the
	// kernel enforce, and as root if it is Privileged. The limits of time and
	// output, and the checks of Measure, are the server's business.
	Start(start agent.Start) (Process, error)
	// Now returns what is used in the whole place, by commands that ended, too.
	Now() Now
	Files
	Finder
}

// A Warmer is a Host that can load an interpreter.
type Warmer interface {
	// Warm returns when all is loaded.
	Warm(warm agent.Warm) (agent.Warmed, error)
}

// A WarmStarter is a Process that says whether it was started from an interpreter that was loaded,
// and if not why; "" where there is none.
type WarmStarter interface {
	StartedWarm() (warm bool, cold string)
}

// Files are a host's files.
type Files interface {
	// List calls each with every entry, and ends with each's error.
	List(list agent.ListDir, each func(agent.FileInfo) error) error
	// Stat returns what path is, following a link.
	Stat(path string) (agent.FileInfo, error)
	// Open opens a regular file. Size says how many bytes it has; no more will
	// be read.
	Open(path string) (agent.FileInfo, io.ReadSeekCloser, error)
	// Move moves an entry, and returns what it is there. It replaces nothing.
	Move(move agent.Move) (agent.FileInfo, error)
	// Update checks all of update, and touches nothing. Then apply, which is
	// called at most once, carries it out; content(i) gives the bytes of
	// update.Write[i], and is called once for each file, in order; apply needn't
	// read all. An error of such a reader ends apply, which returns it.
	Update(update agent.Update) (apply func(content func(i int) io.Reader) (agent.Updated, error), err error)
}

// A Finder finds a host's files. Its methods return early when ctx ends; then their result is of no use.
type Finder interface {
	// Search returns what a search finds, sorted by path.
	Search(ctx context.Context, search agent.Search) (agent.Found, error)
	// Watch calls each without changes once it watches, then with changes, until ctx ends or each
	// fails. Any other error is an [*agent.Error] that says why it can't watch, any more.
	Watch(ctx context.Context, watch agent.Watch, each func(agent.Changes) error) error
}

// A Process is one command that was started, and all that it starts.
type Process interface {
	// Pipes returns the ends of the command's pipes; stdin is nil for a command
	// without. Both outputs are read until they end or fail. Close of stdin
	// also ends a Write that blocks. If stdin is an Ender, End is called in
	// place of Close when the client said that no more comes.
	Pipes() (stdin io.WriteCloser, stdout, stderr io.Reader)
	// Wait returns when the command itself has ended; what it started may go
	// on. It is called once.
	Wait() Status
	// Kill ends everything that the command started, itself included: with
	// SIGTERM and after grace SIGKILL, or SIGKILL at once for 0. It returns
	// when nothing is left; the outputs then end after what was printed. It may
	// be called many times, at once, and after the end.
	Kill(grace time.Duration)
	// Resize gives the terminals another size; without any it does nothing.
	Resize(size agent.Size)
	// Signal sends a signal to the process group of the command, if that hasn't
	// ended, and to that in its terminal's foreground. It reports whether there
	// is a signal of this name.
	Signal(name string) bool
	// Measure returns what all that runs uses now. It may be called until Close.
	Measure() Measure
	// Now returns what all that runs has used so far, and holds. It may be called until Close is.
	Now() Now
	// Refused returns how many forks the kernel refused to this command and all
	// that it started, because the runner was full of processes; 0 where it isn't
	// counted for it alone. It is called periodically while the command runs, so
	// an implementation may sample more.
	Refused() int64
	// Excessive reports whether all that runs holds too much memory of the kernel
	// that no control group counts. One goroutine calls it periodically, and not
	// each call measures.
	Excessive() bool
	// Close frees what the process holds, after Wait, a last Kill and the end
	// of both outputs, and returns what it used.
	Close() Usage
}

// Status is how a command ended: its exit code, or the name of the signal that
// killed it. Lost means that it is unknown: the server then hands out the
// output that there is, and after that no longer knows the execution.
type Status struct {
	Code   int
	Signal string
	Lost   bool
}

// An Ender is a stdin whose end isn't its Close, such as a terminal's.
type Ender interface{ End() error }

// Measure is what an execution has used until now, and how many processes and
// threads it has.
type Measure struct {
	CPU       time.Duration
	Processes int
}

// Now is what was used up to now, and what is held now. What is unknown is 0.
type Now struct {
	Usage
	Memory    int64 // bytes
	Processes int   // and threads
}

// Usage is what a command and all that it started used.
type Usage struct {
	User, System time.Duration
	PeakMemory   int64 // bytes; at least that of the largest of its processes

	// What is unknown is 0, or nil.
	PeakProcesses           int
	BytesRead, BytesWritten *int64

	// Own says that the kernel counted what follows for this command alone, Together that it counted for
	// others, too, which ran in the runner meanwhile.
	Own      bool
	Together bool
	OOMKills int64
	Refused  int64 // forks
}
