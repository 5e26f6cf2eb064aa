package runtime

import (
	"math"
	"time"
)

// An Execution is one command in one runner, and its outcome.
type Execution struct {
	ID            ExecutionID    `json:"id"`
	RunnerID      RunnerID       `json:"runnerId"`
	EnvironmentID EnvironmentID  `json:"environmentId"`
	Tenant        TenantID       `json:"tenant,omitempty"` // of its runner when it began
	Command       []string       `json:"command"`          // argv
	Shell         bool           `json:"shell,omitempty"`  // Command was made from a command line
	Line          string         `json:"line,omitempty"`   // command line for display; "" means derived from Command
	Labels        []Label        `json:"labels,omitempty"` // of its claim and its own, merged by WithLabels
	TimeLimit     time.Duration  `json:"timeLimit"`
	OutputLimit   int64          `json:"outputLimit"`
	Stdin         bool           `json:"stdin"`
	Terminal      *TerminalSize  `json:"terminal,omitempty"` // initial size; nil means no terminal
	Privileged    bool           `json:"privileged,omitempty"`
	Limits        Limits         `json:"limits"`
	Key           string         `json:"key,omitempty"`
	Input         string         `json:"input,omitempty"`      // digest of the request made with Key
	Release       bool           `json:"release,omitempty"`    // remove its runner when it ends
	Batch         *BatchPosition `json:"batch,omitempty"`      // nil means not part of a batch
	Comparison    *Comparison    `json:"comparison,omitempty"` // nil means its output isn't compared
	Lease         time.Duration  `json:"lease,omitempty"`      // cancelled if its client doesn't renew it for this long; 0 means runs without its client
	State         ExecutionState `json:"state"`
	End           `json:"end"`   // zero until FINISHED
	Hint          string         `json:"hint,omitempty"` // what may have gone wrong, for people; "" means nothing is known
	Usage         Usage          `json:"usage"`
	StartedWarm   *bool          `json:"startedWarm,omitempty"` // nil means no interpreter is loaded, or not started
	ColdReason    *string        `json:"coldReason,omitempty"`  // why it didn't start warm, for people
	Timestamps    Timestamps     `json:"timestamps"`

	Losses   []OutputLoss `json:"losses,omitempty"`   // ordered by offset
	LogBytes *int64       `json:"logBytes,omitempty"` // size of its output log when it ended; nil means unfinished
}

// A TerminalSize is in characters; both numbers are 1 to MaxTerminalSize.
type TerminalSize struct {
	Columns int `json:"columns"`
	Rows    int `json:"rows"`
}

// MaxTerminalSize bounds a terminal's columns and rows.
const MaxTerminalSize = 4096

// Limits are an execution's own limits, in addition to its runner's; 0 means none.
type Limits struct {
	CPU       time.Duration `json:"cpu,omitempty"`       // processor time of the command and all its descendants, whole seconds
	Processes int           `json:"processes,omitempty"` // concurrent processes and threads
	OpenFiles int           `json:"openFiles,omitempty"` // descriptors of each process
	FileSize  int64         `json:"fileSize,omitempty"`  // bytes of each file written
}

// Bounds of Limits that a client may request.
const (
	MinOpenFiles = 8 // with fewer, hardly any program starts
	MaxOpenFiles = 1 << 20
	MaxFileSize  = 1 << 40 // bytes
	MaxProcesses = 1 << 16
)

// Passed reports whether the execution exited with status 0.
func (x Execution) Passed() bool {
	return x.State == ExecutionFinished && x.End.Outcome == OutcomeExited && x.End.ExitCode == 0
}

// Accepted reports whether the execution passed and its output, if that is compared, matches.
func (x Execution) Accepted() bool {
	return x.Passed() && (x.Comparison == nil || x.Comparison.Matches != nil && *x.Comparison.Matches)
}

// Failed reports whether the execution ended, wasn't cancelled and isn't Accepted.
func (x Execution) Failed() bool {
	return x.State == ExecutionFinished && !x.Accepted() && x.End.Outcome != OutcomeCancelled
}

// An ExecutionState only moves forward: PENDING → RUNNING → FINISHED;
// RUNNING may be skipped.
type ExecutionState string

// The states.
const (
	ExecutionPending  ExecutionState = "PENDING"  // recorded; the agent hasn't reported its start
	ExecutionRunning  ExecutionState = "RUNNING"  // the agent started it
	ExecutionFinished ExecutionState = "FINISHED" // it has its outcome, which never changes
)

// An Outcome is how an execution ended.
type Outcome string

// The outcomes. Each rests on evidence: a wait status, a counter of the kernel, or an enforced
// limit. Without evidence the outcome is LOST.
const (
	OutcomeExited       Outcome = "EXITED"        // with End.ExitCode
	OutcomeSignaled     Outcome = "SIGNALED"      // by End.Signal
	OutcomeTimeLimit    Outcome = "TIME_LIMIT"    // it used up its wall time
	OutcomeCPULimit     Outcome = "CPU_LIMIT"     // it used up its CPU time
	OutcomeMemoryLimit  Outcome = "MEMORY_LIMIT"  // the kernel killed it for memory
	OutcomeProcessLimit Outcome = "PROCESS_LIMIT" // it reached the limit of processes
	OutcomeOutputLimit  Outcome = "OUTPUT_LIMIT"  // it printed more than its output limit
	OutcomeCancelled    Outcome = "CANCELLED"     // a caller cancelled it
	OutcomeRunnerGone   Outcome = "RUNNER_GONE"   // its runner is gone; see End.GoneReason
	OutcomeLost         Outcome = "LOST"          // no evidence survived
	OutcomeFailed       Outcome = "FAILED"        // it could not be started, or Rockpool failed
)

// Outcomes returns all outcomes.
func Outcomes() []Outcome {
	return []Outcome{
		OutcomeExited, OutcomeSignaled, OutcomeTimeLimit, OutcomeCPULimit, OutcomeMemoryLimit, OutcomeProcessLimit,
		OutcomeOutputLimit, OutcomeCancelled, OutcomeRunnerGone, OutcomeLost, OutcomeFailed,
	}
}

// An End is an outcome with its details.
type End struct {
	Outcome    Outcome    `json:"outcome,omitempty"`
	ExitCode   int        `json:"exitCode,omitempty"`   // with EXITED; with FAILED what a shell returns for such a command, 126 or 127; 0 means none
	Signal     string     `json:"signal,omitempty"`     // with SIGNALED only, for example "SIGKILL"
	GoneReason GoneReason `json:"goneReason,omitempty"` // with RUNNER_GONE only
	Message    string     `json:"message,omitempty"`    // the outcome in words
}

// Usage is what an execution used. PeakMemory or PeakProcesses of 0, and nil, mean unknown.
type Usage struct {
	Wall        time.Duration `json:"wall"`
	User        time.Duration `json:"user"`       // processor time in user mode
	System      time.Duration `json:"system"`     // processor time in the kernel
	PeakMemory  int64         `json:"peakMemory"` // bytes
	OutputBytes int64         `json:"outputBytes"`

	PeakProcesses int    `json:"peakProcesses,omitempty"` // including threads
	BytesRead     *int64 `json:"bytesRead,omitempty"`     // from disks
	BytesWritten  *int64 `json:"bytesWritten,omitempty"`
	OOMKills      int    `json:"oomKills,omitempty"` // its processes that the kernel killed because memory was full
}

// UsageNow is what a running execution has used until At, and what it holds then. A Memory,
// PeakMemory, Processes or PeakProcesses of 0 means unknown.
type UsageNow struct {
	At                       time.Time
	Wall, User, System       time.Duration
	Memory, PeakMemory       int64 // bytes
	Processes, PeakProcesses int   // including threads
	OutputBytes              int64
}

// Timestamps are the times of an execution's transitions; the zero value means not yet, or never.
type Timestamps struct {
	QueuedAt      time.Time `json:"queuedAt"`  // accepted and stored
	StartedAt     time.Time `json:"startedAt"` // the agent started the command
	FirstOutputAt time.Time `json:"firstOutputAt"`
	FinishedAt    time.Time `json:"finishedAt"`
}

// A Stream is one of a command's two output streams.
type Stream byte

// The streams.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

func (s Stream) String() string {
	if s == Stderr {
		return "STDERR"
	}
	return "STDOUT"
}

// A LossCause is the reason why output is missing from an execution's output log.
type LossCause string

// The causes. Each rests on evidence; without evidence the cause is UNKNOWN.
const (
	LossStorageFull LossCause = "STORAGE_FULL" // the disk or the space for output was full when it was printed
	LossUnwritable  LossCause = "UNWRITABLE"   // the log was unwritable for another reason when it was printed
	LossRetention   LossCause = "RETENTION"    // it was stored, and retention removed it
	LossDeleted     LossCause = "DELETED"      // it was stored, and something else deleted the log
	LossDamaged     LossCause = "DAMAGED"      // it was stored, and the log was truncated or changed
	LossUnknown     LossCause = "UNKNOWN"      // no evidence survived
)

// LossCauses returns all causes.
func LossCauses() []LossCause {
	return []LossCause{LossStorageFull, LossUnwritable, LossRetention, LossDeleted, LossDamaged, LossUnknown}
}

// An OutputLoss is a range of output that could not be written, [From, To), and why. To is 0 while
// nothing was written after it.
type OutputLoss struct {
	From  int64     `json:"from"`
	To    int64     `json:"to,omitempty"`
	Cause LossCause `json:"cause"`
}

// LossAt returns why the output at an offset could not be written, or "" if no loss is recorded
// there. The answer holds up to the offset until.
func (x Execution) LossAt(offset int64) (cause LossCause, until int64) {
	until = math.MaxInt64
	for _, loss := range x.Losses {
		switch {
		case offset < loss.From:
			return cause, min(until, loss.From)
		case loss.To == 0:
			cause, until = loss.Cause, math.MaxInt64
		case offset < loss.To:
			cause, until = loss.Cause, loss.To
		default:
			cause, until = "", math.MaxInt64
		}
	}
	return cause, until
}

// LossesBefore returns the recorded losses before an offset. The last one is cut off at the offset.
func (x Execution) LossesBefore(offset int64) []OutputLoss {
	var losses []OutputLoss
	for _, loss := range x.Losses {
		if loss.From >= offset {
			break
		}
		losses = append(losses, loss)
	}
	if n := len(losses); n > 0 && (losses[n-1].To == 0 || losses[n-1].To > offset) {
		losses[n-1].To = offset
	}
	return losses
}

// A Moment is the stored form of a time on the machine's monotonic clock (CLOCK_MONOTONIC), which nobody
// can set. It stands still while the machine is suspended. It has a meaning until the machine boots again.
// The zero Moment is unknown.
type Moment struct {
	Boot string        `json:"boot"`
	At   time.Duration `json:"at"` // since that boot
}
