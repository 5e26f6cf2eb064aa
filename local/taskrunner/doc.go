// Package taskrunner leads one task through its life: it prepares the task, starts it through a
// [Driver], restarts it if that can help, watches it, and removes everything of it. It guarantees
// that a task is removed, or reported as a leak, whatever fails. It knows nothing of sandboxes: the
// work is in hooks and in the driver.
//
//	          ┌─── try again, by the Policy ───┐
//	          ▼                                │
//	New ─▶ PENDING: turn ─▶ prestart ─▶ Start ─▶ poststart ─▶ RUNNING ─▶ DEAD
//	          │                                                │           ▲
//	          ├── attempts used up, or unrecoverable ──────────┼───────────┤
//	          └── Stop ────────────────▶ STOPPING ◀── Stop ────┘           │
//	                                        └── its processes are gone ────┘
//
// Phases only move forward. Each is saved before anyone sees it; a change of events alone isn't
// saved. A task that was RUNNING is never started again: a runner must not come back with an empty
// workspace.
//
// A task that ends is removed: first the driver's Kill signal, then Destroy, as soon as the process
// has ended or after Kill.Timeout, then all Stop hooks. A removal that failed is tried again with growing
// pauses, five times in all. Then the task reports what leaked, and each further call of Stop retries once
// more.
//
// Run ends in two ways. Stop ends the task. The end of Run's context leaves the task running for
// [Task.Restore].
package taskrunner

import (
	"context"
	"encoding/json"
	"errors"
	"syscall"

	"github.com/rockpool/rockpool/runtime"
)

// A Driver starts one task. The task calls its methods one at a time. Every method may be called
// again after a failure, or after the server that called it died.
type Driver interface {
	// Start starts the task. After an error, parts of it may be left for Destroy.
	Start(ctx context.Context, request StartRequest) (Handle, error)
	// Reattach returns a handle of the running task, given what Saved returned. It returns an error
	// unless it is certain that the same task still runs.
	Reattach(ctx context.Context, saved json.RawMessage) (Handle, error)
	// Destroy kills what still runs of the task, and removes everything that Start made, wholly or
	// partly. If nothing is left, that is success.
	Destroy(ctx context.Context) error
}

// A StartRequest is passed to Start after all prestart hooks.
type StartRequest struct {
	Values Values // those of all prestart hooks
}

// A Handle is a started task.
type Handle interface {
	// Saved returns what Reattach needs. It is stored with the task.
	Saved() json.RawMessage
	// Wait returns nil once the task has ended, or ctx's error.
	Wait(ctx context.Context) error
	// Signal sends a signal to the task's first process.
	Signal(signal syscall.Signal) error
	// Close releases the handle; the task continues to run.
	Close()
}

// A Hook takes part in a task's life: it is a [Prestarter], [Poststarter], [Exiter] or [Stopper],
// or several of them. Its name is unique in its task, and must be the same in every version of the
// server, because it is stored.
type Hook interface{ Name() string }

// Values are results of prestart hooks, by names that no two hooks share. They are stored with the
// task.
type Values map[string]string

// A Prestarter runs before the first start. Its success is stored: it doesn't run again before a
// restart. Its error counts as an error of the start.
type Prestarter interface {
	Prestart(ctx context.Context, request PrestartRequest, response *PrestartResponse) error
}

// A PrestartRequest holds the values of the hooks before this one.
type PrestartRequest struct{ Values Values }

// A PrestartResponse is stored with the task.
type PrestartResponse struct{ Values Values }

// A Poststarter runs after every start and after a restore. Its error is recorded and changes
// nothing; to end the task it sets Unusable.
type Poststarter interface {
	Poststart(ctx context.Context, request PoststartRequest, response *PoststartResponse) error
}

// A PoststartRequest says whether the task was started or restored.
type PoststartRequest struct{ Restored bool }

// A PoststartResponse with Unusable ends this start; a restart may follow.
type PoststartResponse struct{ Unusable error }

// An Exiter runs when a RUNNING task has ended without Stop. Its error is recorded and changes
// nothing.
type Exiter interface {
	Exited(ctx context.Context, request ExitedRequest, response *ExitedResponse) error
}

// An ExitedRequest is empty: drivers see that a process ended, but not its status.
type ExitedRequest struct{}

// An ExitedResponse holds the cause of the end if the hook knows it. The last hook's End counts.
type ExitedResponse struct{ End *End }

// A Stopper runs at the end of every task, after Destroy, in reverse order. If one fails, all run again:
// the removal has failed.
type Stopper interface {
	Stop(ctx context.Context, request StopRequest) error
}

// A StopRequest holds the values of the prestart hooks that succeeded.
type StopRequest struct{ Values Values }

// An End is the reason that a task ended.
type End struct {
	Reason  runtime.GoneReason `json:"reason"`
	Message string             `json:"message,omitempty"`
}

// A Failure is an error of a start, with what the task needs to know about it.
type Failure struct {
	Message       string // shown to clients, so it names no paths of the machine
	Unrecoverable bool   // retrying can't help
	Err           error
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// failureOf returns err as a Failure, with a general message if it isn't one.
func failureOf(err error) Failure {
	var f *Failure
	if errors.As(err, &f) {
		return Failure{f.Message, f.Unrecoverable, err}
	}
	return Failure{Message: "it couldn't be started; the server's log says why", Err: err}
}
