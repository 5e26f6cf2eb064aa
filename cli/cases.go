package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rockpool/rockpool/cli/cases"
	"github.com/rockpool/rockpool/cli/execution"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

// codeFailed is the exit code where a case, or the build, failed.
const codeFailed = 1

// caseFlags are those of rockpool run that make it run many cases.
type caseFlags struct {
	output.Format
	Cases         string `placeholder:"DIR" complete:"file" help:"Run the program once for each case of this directory: 1.in is fed, 1.args are its arguments, 1.out is what it must print."`
	Build         string `placeholder:"COMMAND" help:"Run this first, by a shell, beside the uploaded files; no case runs if it fails. With --cases."`
	StopOnFailure bool   `help:"Skip the later cases once one fails. With --cases."`
	FreshRunners  bool   `help:"Give each case a runner of its own. With --cases, without --build."`
}

// unused says that cases are missing where a flag needs them.
func (f caseFlags) unused() error {
	switch {
	case f.Build != "" || f.StopOnFailure || f.FreshRunners:
		return errors.New("--build, --stop-on-failure and --fresh-runners need --cases: name a directory with files such as 1.in")
	case f.JSON || f.Output != "table":
		return errors.New("--output and --json need --cases: else the output is the program's own")
	}
	return nil
}

// read checks the flags and reads the cases.
func (f caseFlags) read(fed bool) ([]cases.Case, error) {
	if fed {
		return nil, errors.New("--stdin and --tty don't go with --cases: each case has its own input")
	}
	if f.Build != "" && f.FreshRunners {
		return nil, errors.New("--build doesn't go with --fresh-runners: what it builds stays in its runner")
	}
	all, err := cases.Read(f.Cases)
	if err != nil {
		return nil, fmt.Errorf("--cases: %w", err)
	}
	return all, nil
}

// job returns what runs the cases; of is what runs the program once.
func (f caseFlags) job(all []cases.Case, of *execution.Job) (*cases.Job, error) {
	switch {
	case len(of.Build) > 0 && f.Build != "":
		return nil, fmt.Errorf("--build replaces `%s`: give what it builds after --, for example: -- ./main", strings.Join(of.Build, " "))
	case len(of.Build) > 0 && f.FreshRunners:
		return nil, fmt.Errorf("--fresh-runners doesn't go with a program that is built by `%s`: what that builds stays in its runner", strings.Join(of.Build, " "))
	}
	j := &cases.Job{Client: of.Client, Out: of.Out, Err: of.Err, Cases: all, StopOnFailure: f.StopOnFailure, Quiet: f.JSON || f.Output != "table"}
	j.Input = client.RunInput{EnvironmentId: of.Environment, Files: of.Files, Command: of.Command, CommandLine: of.Shown(), TimeLimit: of.TimeLimit, Labels: of.Labels, FreshRunners: &f.FreshRunners}
	if len(of.Build) > 0 {
		j.Input.Build = &client.BuildInput{Command: of.Build}
	}
	if f.Build != "" {
		j.Input.Build = &client.BuildInput{Shell: &f.Build}
	}
	return j, nil
}

// run runs the cases, and says what became of them.
func (f caseFlags) run(ctx context.Context, s Streams, j *cases.Job) error {
	report, err := j.Run(ctx)
	switch {
	case errors.Is(err, context.Canceled):
		return ExitError(CodeInterrupted)
	case err != nil:
		return err
	}
	if j.Quiet {
		if err := f.Print(s.Out, report, output.Table{}); err != nil {
			return err
		}
	} else if _, err := fmt.Fprintln(s.Out, output.Lines(report.Summary())); err != nil {
		return err
	}
	return batchCode(ctx, report)
}

// batchCode returns what to exit with; nil: every case passed.
func batchCode(ctx context.Context, report cases.Report) error {
	switch report.Batch.Outcome {
	case runtime.BatchRunnerGone, runtime.BatchFailed:
		return ExitError(CodeOurs)
	case runtime.BatchCancelled, runtime.BatchStopped: // both also where the user interrupts a batch that a case's failure is stopping
		if ctx.Err() != nil || report.Failed() == 0 {
			return ExitError(CodeInterrupted)
		}
	}
	if report.Passed() < len(report.Cases) {
		return ExitError(codeFailed)
	}
	return nil
}
