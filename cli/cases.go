package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rockpool/rockpool/cli/cases"
	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/cli/execution"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

// codeFailed is the exit code when a case or the build failed.
const codeFailed = 1

// caseFlags are the flags of rockpool run that make it run many cases.
type caseFlags struct {
	output.Format
	Cases         string   `placeholder:"DIR" complete:"file" help:"Run the program once for each case in this directory: 1.in is its standard input, 1.args its arguments, 1.out the expected output."`
	Build         string   `placeholder:"COMMAND" help:"Run this shell command first, in the directory of the uploaded files. If it fails, no case runs. With --cases."`
	Compare       string   `enum:"exact,trimmed,tokens,numbers" default:"trimmed" placeholder:"MODE" help:"How to compare with the expected output: exact; trimmed, without white space at line ends and empty lines at the end; tokens, only the words; numbers, as tokens, and numbers may differ by --tolerance. With --cases. (${default})"`
	Tolerance     *float64 `placeholder:"NUMBER" help:"How much a number may differ from the expected one, 0 to 1: absolutely, or relative to it, whichever is more. With --compare numbers. (0.000001)"`
	StopOnFailure bool     `help:"Skip the remaining cases after the first failure. With --cases."`
	FreshRunners  bool     `help:"Run each case in a fresh runner. With --cases, without --build."`
}

// unused returns an error if a flag is given that needs --cases.
func (f caseFlags) unused() error {
	switch {
	case f.Build != "" || f.StopOnFailure || f.FreshRunners || f.Compare != "trimmed" || f.Tolerance != nil:
		return errors.New("--build, --compare, --tolerance, --stop-on-failure and --fresh-runners need --cases: give a directory with files such as 1.in")
	case f.JSON || f.Output != "table":
		return errors.New("--output and --json need --cases: without it, the output is the program's own")
	}
	return nil
}

// read checks the flags and reads the cases. fed: the command line has --stdin or --tty.
func (f caseFlags) read(fed bool) ([]cases.Case, error) {
	if fed {
		return nil, errors.New("--stdin and --tty can't be used with --cases: each case has its own input")
	}
	if f.Tolerance != nil && f.Compare != "numbers" {
		return nil, errors.New("--tolerance needs --compare numbers")
	}
	if f.Build != "" && f.FreshRunners {
		return nil, errors.New("--build can't be used with --fresh-runners: the built files stay in the runner that built them")
	}
	all, err := cases.Read(f.Cases)
	if err != nil {
		return nil, fmt.Errorf("--cases: %w", err)
	}
	return all, nil
}

// job returns the job that runs the cases. of is the job for a single run of the program.
func (f caseFlags) job(all []cases.Case, of *execution.Job) (*cases.Job, error) {
	switch {
	case len(of.Build) > 0 && f.Build != "":
		return nil, fmt.Errorf("--build replaces `%s`: also give the command that runs the built program after --, for example: -- ./main", strings.Join(of.Build, " "))
	case len(of.Build) > 0 && f.FreshRunners:
		return nil, fmt.Errorf("--fresh-runners can't be used with a program that is built by `%s`: the built files stay in the runner that built them", strings.Join(of.Build, " "))
	}
	j := &cases.Job{Client: of.Client, Out: of.Out, Err: of.Err, Cases: all, Compare: runtime.CompareMode(strings.ToUpper(f.Compare)), Tolerance: f.Tolerance, StopOnFailure: f.StopOnFailure, Quiet: f.JSON || f.Output != "table"}
	j.Input = client.RunInput{EnvironmentId: of.Environment, Files: of.Files, Protected: &of.Protected, Command: of.Command, CommandLine: of.Shown(), TimeLimit: of.TimeLimit, Variables: of.Variables, Labels: of.Labels, FreshRunners: &f.FreshRunners}
	if len(of.Build) > 0 {
		j.Input.Build = &client.BuildInput{Command: of.Build}
	}
	if f.Build != "" {
		j.Input.Build = &client.BuildInput{Shell: &f.Build}
	}
	return j, nil
}

// run runs the cases and prints their results.
func (f caseFlags) run(ctx context.Context, s command.Streams, j *cases.Job) error {
	report, err := j.Run(ctx)
	if err == nil {
		err = f.print(s.Out, j.Quiet, report)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return command.ExitError(command.CodeInterrupted)
	case command.ClosedPipe(err):
		return command.ExitError(command.CodePipe)
	case err != nil:
		return err
	}
	return batchCode(ctx, report)
}

// print prints a report, or its summary if the cases were printed before.
func (f caseFlags) print(out io.Writer, whole bool, report cases.Report) (err error) {
	if whole {
		err = f.Print(out, report, output.Table{})
	} else {
		_, err = fmt.Fprintln(out, output.Lines(report.Summary()))
	}
	if err != nil {
		return &output.WriteError{Err: err}
	}
	return nil
}

// batchCode returns the exit code as an error, nil if every case passed.
func batchCode(ctx context.Context, report cases.Report) error {
	results := report.Cases
	if report.Build != nil {
		results = append([]cases.Result{*report.Build}, results...)
	}
	for _, r := range results {
		if r.Outcome == runtime.OutcomeFailed && r.ExitCode != nil { // it couldn't be started
			return command.ExitError(*r.ExitCode)
		}
	}
	switch report.Batch.Outcome {
	case runtime.BatchFailed, runtime.BatchRunnerGone:
		return command.ExitError(command.CodeOurs)
	case runtime.BatchCancelled, runtime.BatchStopped: // either one, if the user interrupts a batch that is stopping after a failed case
		if ctx.Err() != nil || report.Failed() == 0 {
			return command.ExitError(command.CodeInterrupted)
		}
	}
	if report.Passed() < len(report.Cases) {
		return command.ExitError(codeFailed)
	}
	return nil
}
