package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/cli/execution"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

type execCommands struct {
	List   execList   `cmd:"" help:"List running and ended executions, the newest first."`
	Show   execShow   `cmd:"" help:"Show one execution: command, state, times and resource use."`
	Logs   execLogs   `cmd:"" help:"Print lines of the output so far: all, by number, or those that contain a text."`
	Follow execFollow `cmd:"" help:"Copy the output until the execution ends, and exit with its code."`
	Cancel execCancel `cmd:"" help:"Cancel executions: end all their processes."`
}

type execList struct {
	command.Flags
	output.Format
	searchFlags
	State   []runtime.ExecutionState `placeholder:"STATE" enum:"PENDING,RUNNING,FINISHED" help:"Only executions in this state: ${enum}. Can be given more than once."`
	Outcome []runtime.Outcome        `placeholder:"OUTCOME" enum:"EXITED,SIGNALED,TIME_LIMIT,CPU_LIMIT,MEMORY_LIMIT,PROCESS_LIMIT,OUTPUT_LIMIT,CANCELLED,RUNNER_GONE,LOST,FAILED" help:"Only executions with this outcome: ${enum}. Can be given more than once."`
	Failed  bool                     `help:"Only failed executions: they ended, weren't cancelled, and didn't exit with 0 or had a wrong output."`
	Limit   int                      `default:"0" placeholder:"N" help:"List at most the N newest; 0: all. (${default})"`
}

func (c *execList) Run(ctx context.Context, s command.Streams, server client.Sender) error {
	if c.Limit < 0 {
		return fmt.Errorf("--limit is %d, but must be 0 or more", c.Limit)
	}
	all, err := c.executions(ctx, server, search{c.State, c.Outcome, c.Failed, c.Limit})
	if err != nil {
		return err
	}
	empty := "no executions: start one with `rockpool run FILE`"
	if c.given() || c.Failed || len(c.State)+len(c.Outcome) > 0 {
		empty = "no executions match"
	}
	return c.List(s.Out, s.Err, all, executionsTable(all), empty)
}

// executionsTable returns the table of executions for people. `exec cancel --dry-run` prints it
// too.
func executionsTable(all []client.ListedExecution) output.Table {
	t := output.Table{Head: []string{"EXECUTION", "ENVIRONMENT", "STATE", "QUEUED", "TOOK", "LABELS", "COMMAND"}}
	for _, x := range all {
		state := state(x.State, x.Outcome, x.ExitCode, x.Signal)
		if c := x.Comparison; c != nil && c.Matches != nil && !*c.Matches {
			state += ", wrong output"
		}
		t.Rows = append(t.Rows, []string{x.Id, x.EnvironmentId, state, date(&x.Timestamps.QueuedAt), took(x), short(labelText(x.Labels)), short(x.CommandLine)})
	}
	return t
}

// state describes an execution in one cell: its state, or after its end the outcome with exit code
// or signal.
func state(state runtime.ExecutionState, outcome *runtime.Outcome, exitCode *int, signal *string) string {
	switch {
	case outcome == nil:
		return string(state)
	case exitCode != nil:
		return fmt.Sprintf("%s %d", *outcome, *exitCode)
	default:
		return strings.TrimSpace(string(*outcome) + " " + command.Text(signal))
	}
}

// took returns the elapsed time of an execution; "-" if the server has no usage for it.
func took(x client.ListedExecution) string {
	if x.Usage == nil {
		return "-"
	}
	return (time.Duration(x.Usage.WallMs) * time.Millisecond).String()
}

// short cuts a command line to 60 characters, so that it fits into a row.
func short(line string) string {
	const width = 60
	if runes := []rune(line); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return line
}

type execFollow struct {
	command.Flags
	ID        string `arg:"" name:"execution" complete:"execution" help:"Id of the execution."`
	FromStart bool   `default:"true" negatable:"" help:"Print the earlier output first; with --no-from-start only new output."`
	Events    bool   `name:"json" help:"Print the events as JSON, one object per line, with the API's names."`
	Raw       bool   `help:"Print control characters as they are also on a terminal: the program's output then controls it."`
}

func (c *execFollow) Run(ctx context.Context, s command.Streams, server *client.Client) error {
	out, errs := output.Guarded(s.Out, c.Raw), output.Guarded(s.Err, c.Raw)
	defer out.Close()
	defer errs.Close()
	f := &execution.Follower{Out: out, Err: errs, Client: server, Execution: c.ID, Events: c.Events}
	// Fail immediately if the execution doesn't exist.
	patient := command.Patient(server, command.Patience)
	if _, err := client.GetEnding(ctx, patient, c.ID, 0); err != nil {
		return err
	}
	if !c.FromStart {
		var err error
		if f.After, err = latest(ctx, patient, c.ID); err != nil {
			return err
		}
	}
	ended, err := f.Follow(ctx)
	switch {
	case ctx.Err() != nil:
		return command.ExitError(command.CodeInterrupted)
	case err != nil:
		return err
	}
	code, words := command.CodeOf(ended)
	if words != "" {
		f.Report("%s", words)
	}
	return command.ExitError(code)
}

// latest returns the cursor after the output so far.
func latest(ctx context.Context, c client.Sender, id string) (after *string, err error) {
	for {
		out, err := client.GetCursor(ctx, c, id, after)
		if err != nil {
			return nil, err
		}
		after = &out.Execution.Output.Cursor
		if len(out.Execution.Output.Chunks) == 0 {
			return after, nil
		}
	}
}

type execShow struct {
	command.Flags
	output.Format
	ID string `arg:"" name:"execution" complete:"execution" help:"Id of the execution."`
}

func (c *execShow) Run(ctx context.Context, s command.Streams, server client.Sender) error {
	out, err := client.GetExecution(ctx, server, c.ID)
	if err != nil {
		return err
	}
	return c.Print(s.Out, out.Execution, executionTable(out.Execution))
}

// executionTable returns an execution as rows of name and value. Most rows without a value are left
// out.
func executionTable(x client.Execution) output.Table {
	t := output.Table{Head: []string{"execution", x.Id}, Rows: [][]string{
		{"command", x.CommandLine},
		{"state", state(x.State, x.Outcome, x.ExitCode, x.Signal)},
	}}
	add := func(name, value string) {
		if value != "" && value != "-" {
			t.Rows = append(t.Rows, []string{name, value})
		}
	}
	add("message", command.Text(x.Message))
	add("hint", command.Text(x.Hint))
	if c := x.Comparison; c != nil {
		result := command.Text(c.Message)
		switch {
		case c.Matches == nil:
			result = "not compared"
		case *c.Matches:
			result = "the output matches"
		}
		add("comparison", strings.ToLower(string(c.Mode))+": "+result)
	}
	add("labels", labelText(x.Labels))
	add("environment", x.EnvironmentId)
	add("tenant", x.Tenant)
	add("runner", x.RunnerId)
	add("batch", command.Text(x.BatchId))
	if x.CaseIndex != nil {
		add("case", strconv.Itoa(*x.CaseIndex))
	}
	add("queued", date(&x.Timestamps.QueuedAt))
	add("started", date(x.Timestamps.StartedAt))
	add("first output", date(x.Timestamps.FirstOutputAt))
	add("finished", date(x.Timestamps.FinishedAt))
	if x.StartedWarm != nil {
		add("started warm", map[bool]string{true: "yes", false: "no: " + command.Text(x.ColdReason)}[*x.StartedWarm])
	}
	if u := x.Usage; u != nil {
		milliseconds := func(n int64) string { return (time.Duration(n) * time.Millisecond).String() }
		add("took", milliseconds(u.WallMs))
		add("CPU", fmt.Sprintf("%s user, %s system", milliseconds(u.UserMs), milliseconds(u.SystemMs)))
		add("peak memory", number(u.PeakMemory, "bytes"))
		if u.PeakProcesses != nil {
			add("peak processes", strconv.Itoa(*u.PeakProcesses))
		}
		add("read", number(u.BytesRead, "bytes"))
		add("written", number(u.BytesWritten, "bytes"))
		add("output", number(&u.OutputBytes, "bytes"))
	}
	return t
}

// number returns n with its unit; "" if n is unknown.
func number(n *int64, unit string) string {
	if n == nil {
		return ""
	}
	return fmt.Sprintf("%d %s", *n, unit)
}
