package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/batch"
	"github.com/rockpool/rockpool/runtime/store"
)

// Inputs hold what a client said, in the API's units (seconds, bytes). A nil
// pointer or slice means that the client said nothing: the stored or default
// value holds. The engine checks them and names the field in INVALID_INPUT as
// the API spells it.

// PutEnvironmentInput creates or changes an environment.
type PutEnvironmentInput struct {
	ID               runtime.EnvironmentID
	Tenant           *runtime.TenantID // whose it is; nil: that of the stored one, else the default one's
	Shared           *bool             // whether every tenant may see and claim it
	IfRevision       *int              // CONFLICT when the stored one differs; 0: only create
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

	// Mine reports whether the caller may change an environment. It is called with the environment
	// of this ID, or with a deleted one that still has runners. CONFLICT if it returns false. Nil:
	// the caller may change every environment.
	Mine func(runtime.Environment) bool
	// There reports whether a tenant exists. INVALID_INPUT if the environment's doesn't. Nil: each does.
	There func(runtime.TenantID) bool

	pin runtime.ImagePin // with Image: what that is now
}

// ClaimInput asks for a runner.
type ClaimInput struct {
	EnvironmentID     runtime.EnvironmentID
	Tenant            runtime.TenantID // who is to hold the runner
	InactivityTimeout *int             // seconds; 0: never
	WaitFor           *int             // seconds
	Key               string
	Keys              string  // the scope in which Key is unique: the tenant's name; "" for callers for all tenants; "grant:" and the runner's id for grants
	Holder            *string // the caller's own name for what holds the runner, unique in Keys and the environment; nil: none; not with Key
	Labels            []runtime.Label
	Caller            string // whose claims these are: claims that wait are served by turns of their callers
}

// StartInput asks for a command to be run in a claimed runner. Exactly one of
// Command and Shell is set.
type StartInput struct {
	RunnerID         runtime.RunnerID
	Tenant           runtime.TenantID `json:"-"` // who holds the runner
	Command          []string
	Shell            *string
	CommandLine      string          `json:",omitempty"` // to show; "": it is made of the command
	Labels           []runtime.Label `json:",omitempty"` // beside those of the claim
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
	Keys             string `json:"-"` // as ClaimInput's

	input *string // Execute's: all of the stdin
	shell bool    // a batch's: Command was made of a command line
	line  string  // a batch's: CommandLine with the arguments of the case
}

// RunInput asks for the whole: claim, write files, start, feed, release.
type RunInput struct {
	EnvironmentID runtime.EnvironmentID
	Tenant        runtime.TenantID `json:"-"` // as ClaimInput's
	Files         []runtime.FileWrite
	Command       []string
	Shell         *string
	CommandLine   string          `json:",omitempty"` // as StartInput's
	Labels        []runtime.Label `json:",omitempty"` // of the claim
	Variables     []runtime.Variable
	Stdin         *string
	TimeLimit     *int // seconds
	WaitFor       *int // seconds
	Key           string
	Keys          string `json:"-"` // as ClaimInput's
	Caller        string `json:"-"` // as ClaimInput's; a retry with the same key may be another one's
}

// BatchInput asks, beside a StartInput or RunInput, for a batch: that command is run for each
// case.
type BatchInput struct {
	Build         *BuildInput
	Cases         []CaseInput
	StopOnFailure bool
	FreshRunners  bool // each case gets a runner of its own; only with a RunInput
}

// BuildInput is what a batch runs first. Exactly one of Command and Shell is set.
type BuildInput struct {
	Command []string
	Shell   *string
	Bounds  batch.Bounds
}

// CaseInput is what a case has of its own. What its Bounds leave open is as the batch has it.
type CaseInput struct {
	Args   []string // after the command
	Stdin  []byte
	Bounds batch.Bounds
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
	Sees          func(runtime.Runner) bool // nil: all
	EnvironmentID runtime.EnvironmentID
	States        []runtime.RunnerState
	HeldBy        string                // in the claim's holder, or in a label of it, written as name=value; upper and lower case alike
	Labels        []runtime.LabelFilter // of the claim: all match
	From          time.Time             // of those created then or later
	To            time.Time             // of those created before
	NewestFirst   bool
}

// Validate returns INVALID_INPUT where nothing can match.
func (f RunnerFilter) Validate() error {
	return validateFilter(f.Labels, f.From, f.To)
}

func validateFilter(labels []runtime.LabelFilter, from, to time.Time) error {
	if !to.IsZero() && !from.IsZero() && !to.After(from) {
		return runtime.Invalid("to", "must be after from, %s", from.UTC().Format(time.RFC3339Nano))
	}
	return runtime.ValidateLabelFilters(labels)
}

// maxSearchedText bounds what commands are searched for: SQLite compares it at each place of each command.
const maxSearchedText = 256

// validateSearch returns INVALID_INPUT where nothing can match.
func validateSearch(f ExecutionFilter) error {
	if len(f.Command) > maxSearchedText || strings.ContainsRune(f.Command, 0) {
		return runtime.Invalid("command", "must be at most %d bytes without NUL", maxSearchedText)
	}
	if len(f.Text) > maxSearchedText || strings.ContainsRune(f.Text, 0) {
		return runtime.Invalid("text", "must be at most %d bytes without NUL", maxSearchedText)
	}
	return validateFilter(f.Labels, f.From, f.To)
}

func (f RunnerFilter) matches(r runtime.Runner) bool {
	if f.Sees != nil && !f.Sees(r) {
		return false
	}
	if f.EnvironmentID != "" && r.Environment.ID != f.EnvironmentID {
		return false
	}
	if len(f.States) > 0 && !slices.Contains(f.States, r.State) {
		return false
	}
	if !f.From.IsZero() && r.CreatedAt.Before(f.From) || !f.To.IsZero() && !r.CreatedAt.Before(f.To) {
		return false
	}
	if slices.ContainsFunc(f.Labels, func(l runtime.LabelFilter) bool { return !l.Among(r.Claim.Labels) }) {
		return false
	}
	names := func(text string) bool { return strings.Contains(strings.ToLower(text), strings.ToLower(f.HeldBy)) }
	return f.HeldBy == "" || names(r.Claim.Holder) || slices.ContainsFunc(r.Claim.Labels, func(l runtime.Label) bool { return names(l.Name + "=" + l.Value) })
}

// ExecutionFilter selects executions; a zero field selects all.
type ExecutionFilter = store.ExecutionFilter

// Bounds of batches.
const (
	maxBatches       = 512      // that haven't ended, of all tenants; one alone gets half
	maxBatchStdin    = 16 << 20 // bytes of all cases
	shellArgumentOne = "sh"     // what $0 is, where a shell gets arguments
)

// plan checks the input, and completes b. in is what each case runs.
func (of BatchInput) plan(b *runtime.Batch, in StartInput) (shared batch.Shared, steps []batch.Step, err error) {
	if err := runtime.Between("cases", int64(len(of.Cases)), 1, runtime.MaxCases, "cases"); err != nil {
		return shared, nil, err
	}
	if in.Terminal != nil {
		return shared, nil, runtime.Invalid("terminal", "a batch has no terminal: leave terminal or cases out")
	}
	if in.Stdin {
		return shared, nil, errOwnStdin()
	}
	if of.FreshRunners && of.Build != nil {
		return shared, nil, runtime.Invalid("freshRunners", "a build stays in its runner: leave build or freshRunners out")
	}
	x, err := in.execution()
	if err != nil {
		return shared, nil, err
	}
	shared = batch.Shared{Command: x.Command, Shell: x.Shell, Line: x.Line, Labels: in.Labels, Variables: in.Variables, WorkingDirectory: in.WorkingDirectory, Privileged: in.Privileged}
	if in.Shell != nil {
		shared.Command = append(shared.Command, shellArgumentOne)
	}
	if of.Build != nil {
		step, err := of.Build.step()
		if err != nil {
			return shared, nil, err
		}
		steps = append(steps, step)
	}
	left := maxBatchStdin
	for i, c := range of.Cases {
		step, err := c.step(shared, boundsOf(in), &left)
		if err != nil {
			return shared, nil, within(fmt.Sprintf("cases.%d.", i), err)
		}
		steps = append(steps, step)
	}
	b.HasBuild, b.CaseCount, b.StopOnFailure = of.Build != nil, len(of.Cases), of.StopOnFailure
	return shared, steps, nil
}

func errOwnStdin() error {
	return runtime.Invalid("stdin", "each case has its own: give cases.0.stdin and so on instead")
}

// step checks the build.
func (in BuildInput) step() (batch.Step, error) {
	argv, err := command(in.Command, in.Shell)
	if err == nil {
		err = validateBounds(in.Bounds)
	}
	if err != nil {
		return batch.Step{}, within("build.", err)
	}
	return batch.Step{Command: argv, Shell: in.Shell != nil, Bounds: in.Bounds}, nil
}

// step checks a case; left is how many bytes of stdin it may have, and the later ones.
func (c CaseInput) step(shared batch.Shared, bounds batch.Bounds, left *int) (batch.Step, error) {
	step := batch.Step{Args: c.Args, Stdin: c.Stdin, Bounds: c.Bounds.Or(bounds)}
	if *left -= len(c.Stdin); *left < 0 {
		return step, runtime.Invalid("stdin", "must be at most %d bytes together with those of the earlier cases", maxBatchStdin)
	}
	if n := len(shared.Command) + len(c.Args); n > maxCommandArgs {
		return step, runtime.Invalid("args", "must be at most %d arguments together with the command, not %d", maxCommandArgs, n)
	}
	total := 0
	for _, arg := range shared.Command {
		total += len(arg)
	}
	for i, arg := range c.Args {
		if err := argument(fmt.Sprintf("args.%d", i), arg); err != nil {
			return step, err
		}
		total += len(arg)
	}
	if total > maxCommandBytes {
		return step, runtime.Invalid("args", "must be at most %d bytes together with the command, not %d", maxCommandBytes, total)
	}
	return step, validateBounds(c.Bounds)
}

// within puts a prefix before the field that an error names.
func within(prefix string, err error) error {
	var typed *runtime.Error
	if !errors.As(err, &typed) || typed.Field == "" {
		return err
	}
	return runtime.Invalid(prefix+typed.Field, "%s", typed.Message)
}

func boundsOf(in StartInput) batch.Bounds {
	return batch.Bounds{
		TimeLimit: in.TimeLimit, OutputLimit: in.OutputLimit, CPUSeconds: in.CPUSeconds,
		Processes: in.Processes, OpenFiles: in.OpenFiles, FileSize: in.FileSize,
	}
}

// startCase returns how a case is started.
func startCase(b runtime.Batch, shared batch.Shared, step batch.Step) StartInput {
	return StartInput{
		RunnerID: b.RunnerID, Command: step.Argv(shared), shell: step.MadeOfLine(shared), line: step.Line(shared), Labels: shared.Labels, Variables: shared.Variables, WorkingDirectory: shared.WorkingDirectory,
		Privileged: shared.Privileged, Stdin: len(step.Stdin) > 0, TimeLimit: step.TimeLimit, OutputLimit: step.OutputLimit,
		CPUSeconds: step.CPUSeconds, Processes: step.Processes, OpenFiles: step.OpenFiles, FileSize: step.FileSize,
	}
}

// validateBounds checks what can be checked without the environment.
func validateBounds(bounds batch.Bounds) error {
	in := StartInput{Command: []string{runtime.Shell}, TimeLimit: bounds.TimeLimit, OutputLimit: bounds.OutputLimit, CPUSeconds: bounds.CPUSeconds,
		Processes: bounds.Processes, OpenFiles: bounds.OpenFiles, FileSize: bounds.FileSize}
	_, err := in.execution()
	return err
}

// encodeSteps checks the rest, and returns what is stored.
func encodeSteps(steps []batch.Step, b runtime.Batch, env runtime.Environment) ([][]byte, error) {
	encoded := make([][]byte, len(steps))
	for i, step := range steps {
		if step.OutputLimit != nil && *step.OutputLimit > env.OutputLimit {
			field := "build.limits.outputBytes"
			if number := b.First() + i; number >= 0 {
				field = fmt.Sprintf("cases.%d.limits.outputBytes", number)
			}
			return nil, runtime.Between(field, *step.OutputLimit, runtime.MinOutputLimit, env.OutputLimit, "bytes (the environment's outputLimit)")
		}
		encoded[i] = batch.Encode(step)
	}
	return encoded, nil
}
