// Package taskrunner leads one task through its life: it prepares the task,
// starts it through a [Driver], tries again where that can help, watches it,
// and removes what there is of it, whatever goes wrong in between. It knows
// nothing of sandboxes: what there is to do is in hooks and in the driver.
//
//	          ┌─── try again, by the Policy ───┐
//	          ▼                                │
//	New ─▶ PENDING: turn ─▶ prestart ─▶ Start ─▶ poststart ─▶ RUNNING ─▶ DEAD
//	          │                                                │           ▲
//	          ├── attempts used up, or unrecoverable ──────────┼───────────┤
//	          └── Stop ────────────────▶ STOPPING ◀── Stop ────┘           │
//	                                        └── its processes are gone ────┘
//
// Phases only move forward. Each is saved before it is told to anybody, and
// not saved again while nothing has changed but events. A task that was
// RUNNING is never started again: a runner doesn't come back with an empty
// workspace.
//
// A task that comes to its end is removed: its driver's Kill signal, then,
// after a while or at once where that did it, Destroy, then all Stop hooks. A
// removal that fails is tried again with growing pauses, five times; then the
// task says what leaked, and each further Stop tries once more.
//
// There are two ways to end Run: Stop ends the task; the end of Run's context
// leaves it running, to be found again by [Task.Restore].
package taskrunner

import (
	"context"
	"encoding/json"
	"errors"
	"syscall"

	"github.com/rockpool/rockpool/runtime"
)

// A Driver starts one task. Every method may be called again after a failure,
// or after a server that had called it died; one at a time.
type Driver interface {
	// Start starts the task. After an error something may be left for Destroy.
	Start(ctx context.Context, request StartRequest) (Handle, error)
	// Reattach returns the handle of what runs already, from what its Saved
	// said, and an error unless it is certain that this still runs.
	Reattach(ctx context.Context, saved json.RawMessage) (Handle, error)
	// Destroy ends what still runs of the task, by force, and removes all that
	// Start made, whole or in part; nothing there is success.
	Destroy(ctx context.Context) error
}

// A StartRequest is made once all prestart hooks are done.
type StartRequest struct {
	Values Values // of all prestart hooks
}

// A Handle is a task that was started.
type Handle interface {
	// Saved is what Reattach needs.
	Saved() json.RawMessage
	// Wait returns nil once the task has ended, or an error when ctx has.
	Wait(ctx context.Context) error
	// Signal sends a signal to the task's first process.
	Signal(signal syscall.Signal) error
	// Close lets go of the task, which goes on.
	Close()
}

// A Hook takes part in a task's life: it is a [Prestarter], [Poststarter],
// [Exiter] or [Stopper], or several. Its name is unique in its task and the
// same in every version of the server.
type Hook interface{ Name() string }

// Values are what a prestart hook found out, by names that hooks don't share.
type Values map[string]string

// A Prestarter runs before the first start. What it did is remembered: it
// doesn't run again before a restart. Its error counts as one of the start.
type Prestarter interface {
	Prestart(ctx context.Context, request PrestartRequest, response *PrestartResponse) error
}

// A PrestartRequest has what the hooks before this one found out.
type PrestartRequest struct{ Values Values }

// A PrestartResponse is kept with the task.
type PrestartResponse struct{ Values Values }

// A Poststarter runs after every start, and after a restore. Its error is
// recorded and changes nothing; what makes the task unusable it says so.
type Poststarter interface {
	Poststart(ctx context.Context, request PoststartRequest, response *PoststartResponse) error
}

// A PoststartRequest tells which of both it is.
type PoststartRequest struct{ Restored bool }

// A PoststartResponse with Unusable ends this start; another may follow.
type PoststartResponse struct{ Unusable error }

// An Exiter runs when a task that was RUNNING has ended by itself. Its error
// is recorded and changes nothing.
type Exiter interface {
	Exited(ctx context.Context, request ExitedRequest, response *ExitedResponse) error
}

// An ExitedRequest has nothing yet: drivers see the end of a process, not its
// status.
type ExitedRequest struct{}

// An ExitedResponse says why, where the hook knows; the last one counts.
type ExitedResponse struct{ End *End }

// A Stopper runs at the end of every task, in reverse order, after Destroy. Its
// error is recorded and changes nothing.
type Stopper interface {
	Stop(ctx context.Context, request StopRequest) error
}

// A StopRequest has what the prestart hooks found out, as far as they came.
type StopRequest struct{ Values Values }

// An End is why a task ended.
type End struct {
	Reason  runtime.GoneReason `json:"reason"`
	Message string             `json:"message,omitempty"`
}

// A Failure is an error of a start with what a task has to know of it.
type Failure struct {
	Message       string // for people: it is shown to clients
	Unrecoverable bool   // trying again can't help
	Err           error
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// failureOf returns err as a Failure.
func failureOf(err error) Failure {
	var f *Failure
	if errors.As(err, &f) {
		return Failure{f.Message, f.Unrecoverable, err}
	}
	return Failure{Message: "it could not be started; the server's log says why", Err: err}
}
