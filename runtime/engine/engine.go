package engine

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// STUBS: signatures to build against while the engine is written.

type Engine struct{}

type Config struct {
	Dir    string // output logs live below it
	Logger *zap.Logger
}

func New(cluster runtime.Cluster, store any, config Config) (*Engine, error) { panic("stub") }

// Run serves until ctx ends. Restored is closed once what was stored is back.
func (e *Engine) Run(ctx context.Context) error { panic("stub") }

func (e *Engine) PutEnvironment(ctx context.Context, in PutEnvironmentInput) (env runtime.Environment, created bool, err error) {
	panic("stub")
}
func (e *Engine) DeleteEnvironment(ctx context.Context, id runtime.EnvironmentID, endClaimed bool) (bool, error) {
	panic("stub")
}

// sorted by id
func (e *Engine) Environments() []runtime.Environment                              { panic("stub") }
func (e *Engine) Environment(id runtime.EnvironmentID) (runtime.Environment, bool) { panic("stub") }
func (e *Engine) PoolStatus(id runtime.EnvironmentID) (runtime.PoolStatus, bool)   { panic("stub") }

// WatchPools sends a snapshot of each pool first, then each change, latest only; "" watches all. The channel is closed when ctx ends.
func (e *Engine) WatchPools(ctx context.Context, id runtime.EnvironmentID) (<-chan runtime.PoolStatus, error) {
	panic("stub")
}

// sorted by id, which is by time of creation
func (e *Engine) Runners(filter RunnerFilter) []runtime.Runner                     { panic("stub") }
func (e *Engine) Runner(id runtime.RunnerID) (runtime.Runner, bool)                { panic("stub") }
func (e *Engine) Claim(ctx context.Context, in ClaimInput) (runtime.Runner, error) { panic("stub") }
func (e *Engine) Renew(ctx context.Context, id runtime.RunnerID) (runtime.Runner, error) {
	panic("stub")
}

// Release reports false if the runner was already gone.
func (e *Engine) Release(ctx context.Context, id runtime.RunnerID) (bool, error) { panic("stub") }

func (e *Engine) UpdateFiles(ctx context.Context, id runtime.RunnerID, remove []string, write []runtime.FileWrite) (FilesUpdated, error) {
	panic("stub")
}

// sorted by path
func (e *Engine) Files(ctx context.Context, id runtime.RunnerID, path string, recursive bool) ([]runtime.File, error) {
	panic("stub")
}
func (e *Engine) File(ctx context.Context, id runtime.RunnerID, path string) (file runtime.File, found bool, err error) {
	panic("stub")
}

func (e *Engine) Start(ctx context.Context, in StartInput) (runtime.Execution, error) { panic("stub") }

// Execute claims, writes, starts, feeds; the runner is released when the execution ends.
func (e *Engine) Execute(ctx context.Context, in RunInput) (runtime.Execution, error) { panic("stub") }
func (e *Engine) WriteStdin(ctx context.Context, in StdinInput) (offset int64, err error) {
	panic("stub")
}
func (e *Engine) Cancel(ctx context.Context, id runtime.ExecutionID) (runtime.Execution, error) {
	panic("stub")
}

// Execution waits up to wait for the end.
func (e *Engine) Execution(ctx context.Context, id runtime.ExecutionID, wait time.Duration) (runtime.Execution, error) {
	panic("stub")
}

// Executions returns a page of at most first, oldest first, after the given id, and how many match in all.
func (e *Engine) Executions(ctx context.Context, filter ExecutionFilter, first int, after runtime.ExecutionID) (page []runtime.Execution, total int, err error) {
	panic("stub")
}

// Events opens an execution's events after a cursor; "" is the beginning.
func (e *Engine) Events(ctx context.Context, id runtime.ExecutionID, after string) (*Events, error) {
	panic("stub")
}

// Output returns what is there now: chunks of about maxBytes in all (at least one chunk if there is any), the cursor after them, and whether the execution has ended and this is its last output.
func (e *Engine) Output(ctx context.Context, id runtime.ExecutionID, after string, maxBytes int) (chunks []Event, cursor string, end bool, err error) {
	panic("stub")
}

func (e *Engine) Health(ctx context.Context) Health { panic("stub") }

// Events reads one execution's events, one after the other; for one goroutine.
type Events struct{}

// Next blocks until there is an event; io.EOF after EventFinished.
func (s *Events) Next(ctx context.Context) (Event, error) { panic("stub") }
func (s *Events) Close() error                            { panic("stub") }

type EventKind int

const (
	EventStarted EventKind = iota + 1
	EventOutput
	EventLost
	EventFinished
)

// An Event is one event of an execution. Cursor marks the position after it.
type Event struct {
	Kind      EventKind
	Cursor    string
	At        time.Time
	Stream    runtime.Stream    // EventOutput
	Data      []byte            // EventOutput: exact bytes
	Bytes     int64             // EventLost
	Reason    string            // EventLost
	Execution runtime.Execution // EventFinished
}

// Text is Data as valid UTF-8, with U+FFFD where bytes aren't.
func (e Event) Text() string { panic("stub") }
