package runtime

import (
	"regexp"

	"github.com/google/uuid"
)

// An EnvironmentID names an environment. The client chooses it, for example
// "10" or "python"; two ids are the same only if they are equal as strings.
type EnvironmentID string

// A RunnerID names a runner. It is chosen before the runner is started and never reused. Ids sort
// by the time at which they were made.
type RunnerID string

// An ExecutionID names an execution; it sorts like a [RunnerID].
type ExecutionID string

// A BatchID names a batch; it sorts like a [RunnerID].
type BatchID string

// A TicketID names a ticket; it sorts like a [RunnerID].
type TicketID string

// NewRunnerID returns a unique id.
func NewRunnerID() RunnerID { return RunnerID(newID()) }

// NewExecutionID returns a unique id.
func NewExecutionID() ExecutionID { return ExecutionID(newID()) }

// NewBatchID returns a unique id.
func NewBatchID() BatchID { return BatchID(newID()) }

// NewTicketID returns a unique id.
func NewTicketID() TicketID { return TicketID(newID()) }

// NewWaitingID returns a unique id for a waiting claim; it sorts like a [RunnerID].
func NewWaitingID() string { return newID() }

// NewAllocationID returns a unique id.
func NewAllocationID() AllocationID { return AllocationID(newID()) }

// NewEvaluationID returns a unique id.
func NewEvaluationID() EvaluationID { return EvaluationID(newID()) }

// newID returns a UUID of version 7 (RFC 9562): 48 bits of milliseconds, then a counter and random
// bits, so that later ids sort later.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

var environmentIDs = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Validate returns INVALID_INPUT for field "id" unless the id is 1 to 64
// letters, digits, dots, underscores and hyphens that begin with a letter or
// a digit.
func (id EnvironmentID) Validate() error {
	if !environmentIDs.MatchString(string(id)) {
		return Invalid("id", "must be 1 to 64 letters, digits, '.', '_' and '-', beginning with a letter or a digit")
	}
	return nil
}
