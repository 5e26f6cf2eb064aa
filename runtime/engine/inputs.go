package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/batch"
	"github.com/rockpool/rockpool/runtime/store"
)

// Inputs hold a client's request in the API's units (seconds, bytes). A nil pointer or slice means
// that the client left the field out: the stored or default value applies. The engine checks inputs;
// INVALID_INPUT names the field as the API spells it.

// PutEnvironmentInput creates or changes an environment.
type PutEnvironmentInput struct {
	ID               runtime.EnvironmentID
	Tenant           *runtime.TenantID // owner; nil: unchanged, or the default tenant for a new one
	Shared           *bool             // every tenant may see it and claim its runners
	IfRevision       *int              // CONFLICT if the stored revision differs; 0: create only
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
	Warm             *runtime.Warm // InterpreterNone removes it
	DefaultTimeLimit *int          // seconds
	OutputLimit      *int64

	// MayChange reports whether the caller may change an environment. It is called with the environment
	// of this ID, or with a deleted one that still has runners. If it returns false, the result is
	// CONFLICT. nil: the caller may change every environment.
	MayChange func(runtime.Environment) bool
	// TenantExists reports whether a tenant exists. If the environment's doesn't, the result is
	// INVALID_INPUT. nil: every tenant exists.
	TenantExists func(runtime.TenantID) bool

	pin runtime.ImagePin // content of Image now, if Image is set
}

// ClaimInput requests a runner.
type ClaimInput struct {
	EnvironmentID     runtime.EnvironmentID
	Tenant            runtime.TenantID // of the holder
	InactivityTimeout *int             // seconds; 0: never
	WaitFor           *int             // seconds
	Key               string
	// Keys is the scope in which Key is unique: the tenant's name; "" for callers for all tenants;
	// "grant:" and the runner's id for grants.
	Keys string
	// Holder is the caller's own name for the holder, unique in Keys and the environment. It
	// can't be combined with Key. nil: none.
	Holder *string
	Labels []runtime.Label
	Caller string // waiting claims of different callers take turns
}

// StartInput requests a command in a claimed runner. Exactly one of Command and Shell is set.
type StartInput struct {
	RunnerID         runtime.RunnerID
	Tenant           runtime.TenantID `json:"-"` // of the holder
	Command          []string
	Shell            *string
	CommandLine      string          `json:",omitempty"` // for display; "": derived from the command
	Labels           []runtime.Label `json:",omitempty"` // in addition to those of the claim
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
	Lease            *int                  `json:",omitempty"` // seconds; nil: none
	Key              string
	Keys             string `json:"-"` // as in ClaimInput

	input *string // of Execute: the whole stdin
	shell bool    // of a batch: Command was made from a command line
	line  string  // of a batch: CommandLine with the arguments of the case
}

// RunInput requests everything in one call: claim, write files, start, feed stdin, release.
type RunInput struct {
	EnvironmentID    runtime.EnvironmentID
	Tenant           runtime.TenantID `json:"-"` // as in ClaimInput
	Files            []runtime.FileWrite
	Protected        bool `json:",omitempty"` // the files are, as in files.Update
	Command          []string
	Shell            *string
	CommandLine      string          `json:",omitempty"` // as in StartInput
	Labels           []runtime.Label `json:",omitempty"` // of the claim
	Variables        []runtime.Variable
	Stdin            *string
	TimeLimit        *int // seconds
	Lease            *int `json:",omitempty"` // as in StartInput
	WaitFor          *int // seconds
	Key              string
	Keys             string `json:"-"`          // as in ClaimInput
	Caller           string `json:"-"`          // as in ClaimInput; a retry with the same key may come from another caller
	WorkingDirectory string `json:",omitempty"` // "": the workspace
}

// BatchInput turns a StartInput or RunInput into a batch: its command runs once for each case.
type BatchInput struct {
	Build         *BuildInput
	Cases         []CaseInput
	StopOnFailure bool
	FreshRunners  bool // each case gets its own runner; only with a RunInput
}

// BuildInput is the first command of a batch. Exactly one of Command and Shell is set.
type BuildInput struct {
	Command []string
	Shell   *string
	Bounds  batch.Bounds
}

// CaseInput is what a case adds to the batch's command. Unset Bounds are those of the batch.
type CaseInput struct {
	Args      []string // appended to the command
	Stdin     []byte
	Expected  []byte              // output; nil: any
	Compare   runtime.CompareMode `json:",omitempty"` // with Expected; "": TRIMMED
	Tolerance *float64            `json:",omitempty"` // with NUMBERS; nil: defaultTolerance
	Bounds    batch.Bounds
}

// StdinInput is data for a running command's stdin.
type StdinInput struct {
	ExecutionID runtime.ExecutionID
	Data        []byte
	Offset      *int64 // number of bytes written before, which makes a retry safe
	Close       bool
}

// RunnerFilter selects runners; a zero field selects all.
type RunnerFilter struct {
	Sees          func(runtime.Runner) bool // nil: all
	EnvironmentID runtime.EnvironmentID
	States        []runtime.RunnerState
	HeldBy        string                // text in the claim's holder or in a label as name=value; ignores case
	Labels        []runtime.LabelFilter // of the claim: all match
	From          time.Time             // created then or later
	To            time.Time             // created earlier
	NewestFirst   bool
}

// Validate returns INVALID_INPUT if nothing can match.
func (f RunnerFilter) Validate() error {
	return validateFilter(f.Labels, f.From, f.To)
}

// validateFilter checks the conditions that the filters of runners and executions share.
func validateFilter(labels []runtime.LabelFilter, from, to time.Time) error {
	if !to.IsZero() && !from.IsZero() && !to.After(from) {
		return runtime.Invalid("to", "must be after from, %s", from.UTC().Format(time.RFC3339Nano))
	}
	return runtime.ValidateLabelFilters(labels)
}

// maxSearchedText bounds a searched text. SQLite compares it at each position of each command.
const maxSearchedText = 256

// validateSearch returns INVALID_INPUT if nothing can match.
func validateSearch(f ExecutionFilter) error {
	if len(f.Command) > maxSearchedText || strings.ContainsRune(f.Command, 0) {
		return runtime.Invalid("command", "must be at most %d bytes without NUL", maxSearchedText)
	}
	if len(f.Text) > maxSearchedText || strings.ContainsRune(f.Text, 0) {
		return runtime.Invalid("text", "must be at most %d bytes without NUL", maxSearchedText)
	}
	return validateFilter(f.Labels, f.From, f.To)
}

// matches reports whether all of the filter's conditions hold for r.
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
	if slices.ContainsFunc(f.Labels, func(l runtime.LabelFilter) bool { return !l.MatchesAny(r.Claim.Labels) }) {
		return false
	}
	names := func(text string) bool { return strings.Contains(strings.ToLower(text), strings.ToLower(f.HeldBy)) }
	return f.HeldBy == "" || names(r.Claim.Holder) || slices.ContainsFunc(r.Claim.Labels, func(l runtime.Label) bool { return names(l.Name + "=" + l.Value) })
}

// ExecutionFilter selects executions; a zero field selects all.
type ExecutionFilter = store.ExecutionFilter

// Bounds of batches.
const (
	maxBatches       = 512      // unfinished, of all tenants together; one tenant gets at most half
	maxBatchStdin    = 16 << 20 // bytes of all cases together
	maxBatchExpected = 16 << 20 // bytes of all expected outputs together
	defaultTolerance = 1e-6
	shellArgumentOne = "sh" // $0 of a shell that gets arguments
)

// plan checks the input, completes b, and returns the steps. in is the command of each case.
func (of BatchInput) plan(b *runtime.Batch, in StartInput) (shared batch.Shared, steps []batch.Step, err error) {
	if err := runtime.Between("cases", int64(len(of.Cases)), 1, runtime.MaxCases, "cases"); err != nil {
		return shared, nil, err
	}
	if in.Terminal != nil {
		return shared, nil, runtime.Invalid("terminal", "a batch can't have a terminal: leave out terminal or cases")
	}
	if in.Stdin {
		return shared, nil, errOwnStdin()
	}
	if of.FreshRunners && of.Build != nil {
		return shared, nil, runtime.Invalid("freshRunners", "can't be combined with build, whose result stays in one runner: leave out build or freshRunners")
	}
	x, err := in.execution()
	if err != nil {
		return shared, nil, err
	}
	shared = batch.Shared{Command: x.Command, Shell: x.Shell, Line: x.Line, Labels: in.Labels, Variables: in.Variables, WorkingDirectory: in.WorkingDirectory, Privileged: in.Privileged}
	// A shell uses the first argument after the script as $0. Those of the case begin at $1.
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
	stdin, expected := maxBatchStdin, maxBatchExpected
	for i, c := range of.Cases {
		step, err := c.step(shared, boundsOf(in), &stdin)
		if err == nil {
			step.Expected = c.Expected
			step.Comparison, err = c.comparison(&expected)
		}
		if err != nil {
			return shared, nil, within(fmt.Sprintf("cases.%d.", i), err)
		}
		steps = append(steps, step)
	}
	b.Lease = x.Lease
	b.HasBuild, b.CaseCount, b.StopOnFailure = of.Build != nil, len(of.Cases), of.StopOnFailure
	return shared, steps, nil
}

// errOwnStdin returns INVALID_INPUT for a stdin of the whole batch.
func errOwnStdin() error {
	return runtime.Invalid("stdin", "must be given for each case: use cases.0.stdin and so on instead")
}

// step checks the build and returns its step.
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

// step checks a case and returns its step. left is the stdin that this and later cases may have.
func (c CaseInput) step(shared batch.Shared, bounds batch.Bounds, left *int) (batch.Step, error) {
	step := batch.Step{Args: c.Args, Stdin: c.Stdin, Bounds: c.Bounds.Or(bounds)}
	if *left -= len(c.Stdin); *left < 0 {
		return step, runtime.Invalid("stdin", "must be at most %d bytes for all cases together", maxBatchStdin)
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

// comparison checks how a case is compared, and returns that; nil: it isn't. left is the expected
// output that this and later cases may have.
func (c CaseInput) comparison(left *int) (*runtime.Comparison, error) {
	how := runtime.Comparison{Mode: cmp.Or(c.Compare, runtime.CompareTrimmed), Bytes: int64(len(c.Expected))}
	switch {
	case c.Expected == nil && c.Compare != "":
		return nil, runtime.Invalid("compare", "needs an expected output: give expectedOutput too")
	case c.Tolerance != nil && how.Mode != runtime.CompareNumbers:
		return nil, runtime.Invalid("tolerance", "needs compare: NUMBERS")
	case c.Expected == nil:
		return nil, nil
	}
	if *left -= len(c.Expected); *left < 0 {
		return nil, runtime.Invalid("expectedOutput", "must be at most %d bytes for all cases together", maxBatchExpected)
	}
	if how.Mode == runtime.CompareNumbers {
		how.Tolerance = defaultTolerance
	}
	if c.Tolerance != nil {
		how.Tolerance = *c.Tolerance
	}
	if !(how.Tolerance >= 0 && how.Tolerance <= 1) { // also NaN
		return nil, runtime.Invalid("tolerance", "must be 0 to 1")
	}
	return &how, nil
}

// within prefixes the field that an error names.
func within(prefix string, err error) error {
	var typed *runtime.Error
	if !errors.As(err, &typed) || typed.Field == "" {
		return err
	}
	return runtime.Invalid(prefix+typed.Field, "%s", typed.Message)
}

// boundsOf returns a command's limits. A case has them unless it sets its own.
func boundsOf(in StartInput) batch.Bounds {
	return batch.Bounds{
		TimeLimit: in.TimeLimit, OutputLimit: in.OutputLimit, CPUSeconds: in.CPUSeconds,
		Processes: in.Processes, OpenFiles: in.OpenFiles, FileSize: in.FileSize,
	}
}

// startCase returns the input that starts a case.
func startCase(b runtime.Batch, shared batch.Shared, step batch.Step) StartInput {
	return StartInput{
		RunnerID: b.RunnerID, Command: step.Argv(shared), shell: step.MadeOfLine(shared), line: step.Line(shared), Labels: shared.Labels, Variables: shared.Variables, WorkingDirectory: shared.WorkingDirectory,
		Privileged: shared.Privileged, Stdin: len(step.Stdin) > 0, TimeLimit: step.TimeLimit, OutputLimit: step.OutputLimit,
		CPUSeconds: step.CPUSeconds, Processes: step.Processes, OpenFiles: step.OpenFiles, FileSize: step.FileSize,
	}
}

// validateBounds checks everything that doesn't depend on the environment.
func validateBounds(bounds batch.Bounds) error {
	in := StartInput{Command: []string{runtime.Shell}, TimeLimit: bounds.TimeLimit, OutputLimit: bounds.OutputLimit, CPUSeconds: bounds.CPUSeconds,
		Processes: bounds.Processes, OpenFiles: bounds.OpenFiles, FileSize: bounds.FileSize}
	_, err := in.execution()
	return err
}

// encodeSteps checks the environment's limits and returns the steps as they are stored.
func encodeSteps(steps []batch.Step, b runtime.Batch, env runtime.Environment) ([]store.BatchStep, error) {
	encoded := make([]store.BatchStep, len(steps))
	for i, step := range steps {
		if step.OutputLimit != nil && *step.OutputLimit > env.OutputLimit {
			field := "build.limits.outputBytes"
			if number := b.First() + i; number >= 0 {
				field = fmt.Sprintf("cases.%d.limits.outputBytes", number)
			}
			return nil, runtime.Between(field, *step.OutputLimit, runtime.MinOutputLimit, env.OutputLimit, "bytes (the environment's outputLimit)")
		}
		encoded[i] = store.BatchStep{Value: batch.Encode(step), Expected: step.Expected}
	}
	return encoded, nil
}
