package batch

import (
	"cmp"
	"encoding/json"

	"github.com/rockpool/rockpool/runtime"
)

// Shared is what all executions of a batch have in common. It is stored until the batch has finished.
type Shared struct {
	Command []string `json:"command"`         // of the cases, which may append arguments
	Shell   bool     `json:"shell,omitempty"` // Command was made from a command line
	// Line is the command line of the cases for display, without their arguments; "" means derived from
	// Command.
	Line             string              `json:"line,omitempty"`
	Labels           []runtime.Label     `json:"labels,omitempty"`
	Variables        []runtime.Variable  `json:"variables,omitempty"`
	WorkingDirectory string              `json:"workingDirectory,omitempty"`
	Privileged       bool                `json:"privileged,omitempty"`
	Files            []runtime.FileWrite `json:"files,omitempty"`     // for each fresh runner
	Protected        bool                `json:"protected,omitempty"` // as the files are
	WaitFor          *int                `json:"waitFor,omitempty"`   // seconds, for each fresh runner
}

// A Step is what one execution of a batch has of its own. It is stored until the batch has finished.
type Step struct {
	Command    []string            `json:"command,omitempty"` // instead of the shared one
	Shell      bool                `json:"shell,omitempty"`   // with Command: it was made from a command line
	Args       []string            `json:"args,omitempty"`
	Stdin      []byte              `json:"stdin,omitempty"`
	Expected   []byte              `json:"-"`                    // output, stored separately
	Comparison *runtime.Comparison `json:"comparison,omitempty"` // how the output is compared; nil means it isn't
	Bounds
}

// Bounds are an execution's limits; nil means the environment's, or none.
type Bounds struct {
	TimeLimit   *int   `json:"timeLimit,omitempty"` // seconds
	OutputLimit *int64 `json:"outputLimit,omitempty"`
	CPUSeconds  *int   `json:"cpuSeconds,omitempty"`
	Processes   *int   `json:"processes,omitempty"`
	OpenFiles   *int   `json:"openFiles,omitempty"`
	FileSize    *int64 `json:"fileSize,omitempty"`
}

// Or returns b with its nil fields taken from other.
func (b Bounds) Or(other Bounds) Bounds {
	return Bounds{
		cmp.Or(b.TimeLimit, other.TimeLimit), cmp.Or(b.OutputLimit, other.OutputLimit), cmp.Or(b.CPUSeconds, other.CPUSeconds),
		cmp.Or(b.Processes, other.Processes), cmp.Or(b.OpenFiles, other.OpenFiles), cmp.Or(b.FileSize, other.FileSize),
	}
}

// Argv returns the execution's argv.
func (s Step) Argv(shared Shared) []string {
	if s.Command != nil {
		return s.Command
	}
	return append(shared.Command[:len(shared.Command):len(shared.Command)], s.Args...)
}

// Line returns the command line for display; "" means derived from Argv.
func (s Step) Line(shared Shared) string {
	if s.Command != nil || shared.Line == "" {
		return ""
	}
	return runtime.WithArguments(shared.Line, s.Args)
}

// MadeOfLine reports whether Argv was made from a command line.
func (s Step) MadeOfLine(shared Shared) bool {
	if s.Command != nil {
		return s.Shell
	}
	return shared.Shell
}

// Encode returns the stored form of a Shared or a Step.
func Encode(of any) []byte {
	text, err := json.Marshal(of)
	if err != nil {
		panic(err) // impossible: these are plain structs
	}
	return text
}
