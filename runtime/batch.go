package runtime

import "time"

// A Batch is one build and many cases, which run one after the other. Each is an
// execution. Cases are counted from 0; the build is BuildCase.
type Batch struct {
	ID            BatchID       `json:"id"`
	RunnerID      RunnerID      `json:"runnerId,omitempty"` // that all run in; "": each case has its own
	EnvironmentID EnvironmentID `json:"environmentId"`
	Tenant        TenantID      `json:"tenant,omitempty"`
	HasBuild      bool          `json:"hasBuild,omitempty"` // its first execution is a build
	CaseCount     int           `json:"caseCount"`
	StopOnFailure bool          `json:"stopOnFailure,omitempty"`
	Key           string        `json:"key,omitempty"`
	Input         string        `json:"input,omitempty"`   // digest of what was asked
	Release       bool          `json:"release,omitempty"` // its runner goes when it ends
	State         BatchState    `json:"state"`
	Outcome       BatchOutcome  `json:"outcome,omitempty"` // "" until FINISHED
	Message       string        `json:"message,omitempty"` // the outcome in words
	Progress      BatchProgress `json:"progress"`
	QueuedAt      time.Time     `json:"queuedAt"`
	FinishedAt    time.Time     `json:"finishedAt"`
}

// BatchProgress counts a batch's cases. Those that began are the first ones.
type BatchProgress struct {
	Begun  int `json:"begun"`  // ended ones included
	Ended  int `json:"ended"`  //
	Failed int `json:"failed"` // ended otherwise than by exit status 0
}

// BuildCase stands for a batch's build where others have the number of their case.
const BuildCase = -1

// MaxCases bounds the cases of a batch.
const MaxCases = 1000

// FreshRunners reports whether each case has a runner of its own.
func (b Batch) FreshRunners() bool { return b.RunnerID == "" }

// Skipped is how many cases never began, and won't.
func (b Batch) Skipped() int {
	if b.State != BatchFinished {
		return 0
	}
	return b.CaseCount - b.Progress.Begun
}

// Steps are its executions, if all begin.
func (b Batch) Steps() int { return b.CaseCount - b.First() }

// First is the case that begins first.
func (b Batch) First() int {
	if b.HasBuild {
		return BuildCase
	}
	return 0
}

// A BatchState only moves forward.
type BatchState string

// The states.
const (
	BatchRunning  BatchState = "RUNNING"  // it builds, or runs its cases
	BatchFinished BatchState = "FINISHED" // it has its one outcome
)

// A BatchOutcome is how a batch ended.
type BatchOutcome string

// The outcomes.
const (
	BatchCompleted   BatchOutcome = "COMPLETED"    // every case ended, well or not
	BatchBuildFailed BatchOutcome = "BUILD_FAILED" // no case began
	BatchStopped     BatchOutcome = "STOPPED"      // at a case that failed, as asked
	BatchCancelled   BatchOutcome = "CANCELLED"    // somebody cancelled it
	BatchRunnerGone  BatchOutcome = "RUNNER_GONE"  // its runner went
	BatchFailed      BatchOutcome = "FAILED"       // a case could not be started
)

// A BatchPlace is where an execution stands in its batch.
type BatchPlace struct {
	ID   BatchID `json:"id"`
	Case int     `json:"case"` // BuildCase: it is the build
}

// A CaseState is what became of a case.
type CaseState string

// The states.
const (
	CaseWaiting   CaseState = "WAITING"   // for earlier ones
	CaseRunning   CaseState = "RUNNING"   // it has its execution
	CasePassed    CaseState = "PASSED"    // it exited with status 0
	CaseFailed    CaseState = "FAILED"    // it ended otherwise
	CaseSkipped   CaseState = "SKIPPED"   // it never began
	CaseCollected CaseState = "COLLECTED" // it ended, and isn't kept any more
)

// A Case is one case of a batch.
type Case struct {
	Index     int
	State     CaseState
	Execution *Execution // nil: it hasn't one, or not any more
}

// CaseState returns what became of a case, by its execution, if that is known.
func (b Batch) CaseState(number int, x Execution, known bool) CaseState {
	switch {
	case known && x.State != ExecutionFinished:
		return CaseRunning
	case known && x.Passed():
		return CasePassed
	case known:
		return CaseFailed
	case b.State != BatchFinished:
		return CaseWaiting
	case number < b.Progress.Begun:
		return CaseCollected
	default:
		return CaseSkipped
	}
}
