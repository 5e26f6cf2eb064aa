package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rockpool/rockpool/cli/connection"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
)

type execShow struct {
	connection.Flags
	output.Format
	ID string `arg:"" name:"execution" complete:"execution" help:"Id of the execution."`
}

// Run shows an execution.
func (c *execShow) Run(ctx context.Context, s Streams, server client.Sender) error {
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
	add("message", text(x.Message))
	add("hint", text(x.Hint))
	if c := x.Comparison; c != nil {
		result := text(c.Message)
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
	add("batch", text(x.BatchId))
	if x.CaseIndex != nil {
		add("case", strconv.Itoa(*x.CaseIndex))
	}
	add("queued", date(&x.Marks.QueuedAt))
	add("started", date(x.Marks.StartedAt))
	add("first output", date(x.Marks.FirstOutputAt))
	add("finished", date(x.Marks.FinishedAt))
	if x.StartedWarm != nil {
		add("started warm", map[bool]string{true: "yes", false: "no: " + text(x.ColdReason)}[*x.StartedWarm])
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
