package request

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/batch"
	"github.com/rockpool/rockpool/runtime/store"
)

// Bounds of batches.
const (
	maxBatchStdin    = 16 << 20 // bytes of all cases together
	maxBatchExpected = 16 << 20 // bytes of all expected outputs together
	defaultTolerance = 1e-6
	shellArgumentOne = "sh" // $0 of a shell that gets arguments
)

// A Batch turns a Start or Run into a batch: its command runs once for each case.
type Batch struct {
	Build         *Build
	Cases         []Case
	StopOnFailure bool
	FreshRunners  bool // each case gets its own runner; only with a Run
}

// A Build is the first command of a batch. Exactly one of Command and Shell is set.
type Build struct {
	Command []string
	Shell   *string
	Bounds  batch.Bounds
}

// A Case is what a case adds to the batch's command. Unset Bounds are those of the batch.
type Case struct {
	Args      []string // appended to the command
	Stdin     []byte
	Expected  []byte              // output; nil means any
	Compare   runtime.CompareMode `json:",omitempty"` // with Expected; "" means TRIMMED
	Tolerance *float64            `json:",omitempty"` // with NUMBERS; nil means defaultTolerance
	Bounds    batch.Bounds
}

// Plan checks the request, completes b, and returns the steps. in is the command of each case.
func (of Batch) Plan(b *runtime.Batch, in Start) (shared batch.Shared, steps []batch.Step, err error) {
	if err := runtime.Between("cases", int64(len(of.Cases)), 1, runtime.MaxCases, "cases"); err != nil {
		return shared, nil, err
	}
	if in.Terminal != nil {
		return shared, nil, runtime.Invalid("terminal", "a batch can't have a terminal: leave out terminal or cases")
	}
	if in.Stdin {
		return shared, nil, OwnStdin()
	}
	if of.FreshRunners && of.Build != nil {
		return shared, nil, runtime.Invalid("freshRunners", "can't be combined with build, whose result stays in one runner: leave out build or freshRunners")
	}
	x, err := in.Execution()
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

// OwnStdin returns INVALID_INPUT for a stdin of the whole batch.
func OwnStdin() error {
	return runtime.Invalid("stdin", "must be given for each case: use cases.0.stdin and so on instead")
}

func (in Build) step() (batch.Step, error) {
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
func (c Case) step(shared batch.Shared, bounds batch.Bounds, left *int) (batch.Step, error) {
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
		if err := text(fmt.Sprintf("args.%d", i), arg, maxArgBytes); err != nil {
			return step, err
		}
		total += len(arg)
	}
	if total > maxCommandBytes {
		return step, runtime.Invalid("args", "must be at most %d bytes together with the command, not %d", maxCommandBytes, total)
	}
	return step, validateBounds(c.Bounds)
}

// comparison checks how a case is compared, and returns that; nil means it isn't. left is the expected
// output that this and later cases may have.
func (c Case) comparison(left *int) (*runtime.Comparison, error) {
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
	typed, ok := errors.AsType[*runtime.Error](err)
	if !ok || typed.Field == "" {
		return err
	}
	return runtime.Invalid(prefix+typed.Field, "%s", typed.Message)
}

// boundsOf returns a command's limits. A case has them unless it sets its own.
func boundsOf(in Start) batch.Bounds {
	return batch.Bounds{
		TimeLimit: in.TimeLimit, OutputLimit: in.OutputLimit, CPUSeconds: in.CPUSeconds,
		Processes: in.Processes, OpenFiles: in.OpenFiles, FileSize: in.FileSize,
	}
}

// ForCase returns the request that starts a case.
func ForCase(b runtime.Batch, shared batch.Shared, step batch.Step) Start {
	return Start{
		RunnerID: b.RunnerID, Command: step.Argv(shared), FromShell: step.MadeOfLine(shared), Line: step.Line(shared), Labels: shared.Labels, Variables: shared.Variables, WorkingDirectory: shared.WorkingDirectory,
		Privileged: shared.Privileged, Stdin: len(step.Stdin) > 0, TimeLimit: step.TimeLimit, OutputLimit: step.OutputLimit,
		CPUSeconds: step.CPUSeconds, Processes: step.Processes, OpenFiles: step.OpenFiles, FileSize: step.FileSize,
	}
}

// validateBounds checks everything that doesn't depend on the environment.
func validateBounds(bounds batch.Bounds) error {
	in := Start{Command: []string{runtime.Shell}, TimeLimit: bounds.TimeLimit, OutputLimit: bounds.OutputLimit, CPUSeconds: bounds.CPUSeconds,
		Processes: bounds.Processes, OpenFiles: bounds.OpenFiles, FileSize: bounds.FileSize}
	_, err := in.Execution()
	return err
}

// EncodeSteps checks the environment's limits and returns the steps as they are stored.
func EncodeSteps(steps []batch.Step, b runtime.Batch, env runtime.Environment) ([]store.BatchStep, error) {
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

// CaseKey returns the idempotency key of a batch's execution. Keys of callers never have its prefix.
func CaseKey(id runtime.BatchID, number int) string {
	if number == runtime.BuildCase {
		return fmt.Sprintf("batch/%s/build", id)
	}
	return fmt.Sprintf("batch/%s/%d", id, number)
}

// LaterCase reports whether CaseKey made this key for a case other than a batch's first.
func LaterCase(key string) bool {
	return strings.HasPrefix(key, "batch/") && !strings.HasSuffix(key, "/0")
}
