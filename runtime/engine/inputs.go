package engine

import (
	"slices"
	"strings"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/store"
)

// Inputs hold what a client said, in the API's units (seconds, bytes). A nil
// pointer or slice means that the client said nothing: the stored or default
// value holds. The engine checks them and names the field in INVALID_INPUT as
// the API spells it.

// PutEnvironmentInput creates or changes an environment.
type PutEnvironmentInput struct {
	ID               runtime.EnvironmentID
	IfRevision       *int // CONFLICT when the stored one differs; 0: only create
	Image            *string
	PoolSize         *int
	CPUMHz           *int
	MemoryMiB        *int
	Processes        *int
	WorkspaceMiB     *int
	NetworkAccess    *bool
	ExposedPorts     []int
	Allow            []string
	AllowNames       []string
	BandwidthMbit    *int
	Isolation        *runtime.Isolation
	Runtime          *string
	Variables        []runtime.Variable
	Warm             *runtime.Warm // with InterpreterNone: none
	DefaultTimeLimit *int          // seconds
	OutputLimit      *int64

	pin runtime.ImagePin // with Image: what that is now
}

// ClaimInput asks for a runner.
type ClaimInput struct {
	EnvironmentID     runtime.EnvironmentID
	InactivityTimeout *int // seconds; 0: never
	WaitFor           *int // seconds
	Key               string
	Labels            []runtime.Label
	Caller            string // whose claims these are: claims that wait are served by turns of their callers
}

// StartInput asks for a command to be run in a claimed runner. Exactly one of
// Command and Shell is set.
type StartInput struct {
	RunnerID         runtime.RunnerID
	Command          []string
	Shell            *string
	Variables        []runtime.Variable
	WorkingDirectory string
	TimeLimit        *int // seconds; nil: the environment's; 0: none
	OutputLimit      *int64
	CPUSeconds       *int
	Processes        *int
	OpenFiles        *int
	FileSize         *int64
	Stdin            bool
	Terminal         *runtime.TerminalSize // implies Stdin
	Privileged       bool                  // as root inside the runner
	Key              string

	input *string // Execute's: all of the stdin
}

// RunInput asks for the whole: claim, write files, start, feed, release.
type RunInput struct {
	EnvironmentID runtime.EnvironmentID
	Files         []runtime.FileWrite
	Command       []string
	Shell         *string
	Variables     []runtime.Variable
	Stdin         *string
	TimeLimit     *int // seconds
	WaitFor       *int // seconds
	Key           string
	Caller        string `json:"-"` // as ClaimInput's; a retry with the same key may be another one's
}

// StdinInput feeds a running command.
type StdinInput struct {
	ExecutionID runtime.ExecutionID
	Data        []byte
	Offset      *int64 // bytes written before; makes a retry safe
	Close       bool
}

// RunnerFilter selects runners; a zero field selects all.
type RunnerFilter struct {
	EnvironmentID runtime.EnvironmentID
	States        []runtime.RunnerState
	HeldBy        string // in a label of the claim, written as name=value; upper and lower case alike
	NewestFirst   bool
}

func (f RunnerFilter) matches(r runtime.Runner) bool {
	if f.EnvironmentID != "" && r.Environment.ID != f.EnvironmentID {
		return false
	}
	if len(f.States) > 0 && !slices.Contains(f.States, r.State) {
		return false
	}
	holds := func(label runtime.Label) bool {
		return strings.Contains(strings.ToLower(label.Name+"="+label.Value), strings.ToLower(f.HeldBy))
	}
	return f.HeldBy == "" || slices.ContainsFunc(r.Claim.Labels, holds)
}

// ExecutionFilter selects executions; a zero field selects all.
type ExecutionFilter = store.ExecutionFilter
