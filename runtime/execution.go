package runtime

import "time"

// An Execution is one command in one runner, and what became of it.
type Execution struct {
	ID            ExecutionID    `json:"id"`
	RunnerID      RunnerID       `json:"runnerId"`
	EnvironmentID EnvironmentID  `json:"environmentId"`
	Tenant        TenantID       `json:"tenant,omitempty"` // its runner's, when it began
	Command       []string       `json:"command"`          // argv
	Shell         bool           `json:"shell,omitempty"`  // the caller gave a command line, of which Command was made
	Line          string         `json:"line,omitempty"`   // to show as the command line; "": it is made of Command
	Labels        []Label        `json:"labels,omitempty"` // its claim's and its own, as WithLabels has them
	TimeLimit     time.Duration  `json:"timeLimit"`
	OutputLimit   int64          `json:"outputLimit"`
	Stdin         bool           `json:"stdin"`
	Terminal      *TerminalSize  `json:"terminal,omitempty"` // as it was at the start; nil: none
	Privileged    bool           `json:"privileged,omitempty"`
	Limits        Limits         `json:"limits"`
	Key           string         `json:"key,omitempty"`
	Input         string         `json:"input,omitempty"`   // digest of what was asked with Key
	Release       bool           `json:"release,omitempty"` // its runner goes when it ends
	Batch         *BatchPlace    `json:"batch,omitempty"`   // nil: it is part of none
	State         ExecutionState `json:"state"`
	End           End            `json:"end"` // zero until FINISHED
	Usage         Usage          `json:"usage"`
	StartedWarm   *bool          `json:"startedWarm,omitempty"` // from its runner's interpreter (Warm); nil: the runner has none, or it hasn't started
	ColdReason    *string        `json:"coldReason,omitempty"`  // why not, for people
	Marks         Marks          `json:"marks"`

	Losses   []OutputLoss `json:"losses,omitempty"`   // by their offset
	LogBytes *int64       `json:"logBytes,omitempty"` // that its log had when it ended; nil: it hasn't, or an older server ended it
}

// A TerminalSize is in characters; each is 1 to MaxTerminalSize.
type TerminalSize struct {
	Columns int `json:"columns"`
	Rows    int `json:"rows"`
}

// MaxTerminalSize bounds a terminal's columns and rows.
const MaxTerminalSize = 4096

// Limits are an execution's own, beside those of its runner; 0 is none.
type Limits struct {
	CPU       time.Duration `json:"cpu,omitempty"`       // processor time of the command and all that it starts, whole seconds
	Processes int           `json:"processes,omitempty"` // processes and threads at once
	OpenFiles int           `json:"openFiles,omitempty"` // descriptors of each process
	FileSize  int64         `json:"fileSize,omitempty"`  // bytes of each file that is written
}

// Bounds of Limits that are given.
const (
	MinOpenFiles = 8 // fewer, and hardly any program can start
	MaxOpenFiles = 1 << 20
	MaxFileSize  = 1 << 40
	MaxProcesses = 1 << 16
)

// Passed reports whether it ended by itself, with exit status 0.
func (x Execution) Passed() bool {
	return x.State == ExecutionFinished && x.End.Outcome == OutcomeExited && x.End.ExitCode == 0
}

// Failed reports whether it ended otherwise than by exit status 0, and wasn't cancelled.
func (x Execution) Failed() bool {
	return x.State == ExecutionFinished && !x.Passed() && x.End.Outcome != OutcomeCancelled
}

// An ExecutionState only moves forward: PENDING → RUNNING → FINISHED;
// RUNNING may be skipped.
type ExecutionState string

// The states.
const (
	ExecutionPending  ExecutionState = "PENDING"  // recorded; the agent hasn't said that it runs
	ExecutionRunning  ExecutionState = "RUNNING"  // the agent started it
	ExecutionFinished ExecutionState = "FINISHED" // it has its one outcome
)

// An Outcome is how an execution ended.
type Outcome string

// The outcomes. Each rests on evidence: a wait status, a counter of the
// kernel, a limit that was enforced. Without any it is LOST.
const (
	OutcomeExited       Outcome = "EXITED"        // with End.ExitCode
	OutcomeSignaled     Outcome = "SIGNALED"      // by End.Signal
	OutcomeTimeLimit    Outcome = "TIME_LIMIT"    // it ran for its whole wall time
	OutcomeCPULimit     Outcome = "CPU_LIMIT"     // it used up its CPU time
	OutcomeMemoryLimit  Outcome = "MEMORY_LIMIT"  // the kernel killed it for memory
	OutcomeProcessLimit Outcome = "PROCESS_LIMIT" // it ran into the limit of processes
	OutcomeOutputLimit  Outcome = "OUTPUT_LIMIT"  // it printed more than it may
	OutcomeCancelled    Outcome = "CANCELLED"     // somebody cancelled it
	OutcomeRunnerGone   Outcome = "RUNNER_GONE"   // its runner went, for End.GoneReason
	OutcomeLost         Outcome = "LOST"          // no evidence survived
	OutcomeFailed       Outcome = "FAILED"        // it could not be started, or we failed
)

// Outcomes are all.
func Outcomes() []Outcome {
	return []Outcome{
		OutcomeExited, OutcomeSignaled, OutcomeTimeLimit, OutcomeCPULimit, OutcomeMemoryLimit, OutcomeProcessLimit,
		OutcomeOutputLimit, OutcomeCancelled, OutcomeRunnerGone, OutcomeLost, OutcomeFailed,
	}
}

// An End is an outcome with its details.
type End struct {
	Outcome    Outcome    `json:"outcome,omitempty"`
	ExitCode   int        `json:"exitCode,omitempty"`   // with EXITED only
	Signal     string     `json:"signal,omitempty"`     // with SIGNALED only, for example "SIGKILL"
	GoneReason GoneReason `json:"goneReason,omitempty"` // with RUNNER_GONE only
	Message    string     `json:"message,omitempty"`    // the outcome in words
}

// Usage is what an execution used. A zero PeakMemory or PeakProcesses, and a nil,
// mean that nobody could tell.
type Usage struct {
	Wall        time.Duration `json:"wall"`
	User        time.Duration `json:"user"`
	System      time.Duration `json:"system"`
	PeakMemory  int64         `json:"peakMemory"` // bytes
	OutputBytes int64         `json:"outputBytes"`

	PeakProcesses int    `json:"peakProcesses,omitempty"` // and threads
	BytesRead     *int64 `json:"bytesRead,omitempty"`     // from disks
	BytesWritten  *int64 `json:"bytesWritten,omitempty"`
}

// UsageNow is what a running execution has used until At, and holds then. A zero Memory, PeakMemory,
// Processes or PeakProcesses means that nobody could tell.
type UsageNow struct {
	At                       time.Time
	Wall, User, System       time.Duration
	Memory, PeakMemory       int64 // bytes
	Processes, PeakProcesses int   // and threads
	OutputBytes              int64
}

// Marks are the times of what happened; zero means not yet, or never.
type Marks struct {
	QueuedAt      time.Time `json:"queuedAt"`
	StartedAt     time.Time `json:"startedAt"`
	FirstOutputAt time.Time `json:"firstOutputAt"`
	FinishedAt    time.Time `json:"finishedAt"`
}

// A Stream is one of a command's two outputs.
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
