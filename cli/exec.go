package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rockpool/rockpool/cli/connection"
	"github.com/rockpool/rockpool/cli/execution"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

type execCommands struct {
	List   execList   `cmd:"" help:"List executions, ended ones too for as long as they are kept."`
	Logs   execLogs   `cmd:"" help:"Print the lines that it has printed so far: all, some by number, or those with a text."`
	Follow execFollow `cmd:"" help:"Copy what an execution prints, to its end, and exit with its code."`
	Cancel execCancel `cmd:"" help:"End executions, with every process that they started."`
}

// Help is what rockpool exec --help says beyond its commands.
func (execCommands) Help() string {
	return `Examples:

    rockpool exec list --state RUNNING
    rockpool exec logs "$id" --search error --numbers
    rockpool exec follow "$id"
    rockpool exec cancel "$id"`
}

type execList struct {
	connection.Flags
	output.Format
	Env    string                   `short:"e" complete:"environment" placeholder:"ENVIRONMENT" help:"Only those in runners of this environment."`
	Runner string                   `complete:"runner" placeholder:"RUNNER" help:"Only those in this runner."`
	State  []runtime.ExecutionState `placeholder:"STATE" enum:"PENDING,RUNNING,FINISHED" help:"Only those in this state: ${enum}. Can be given more than once."`
}

// Help is what its --help says beyond the flags.
func (execList) Help() string {
	return `Examples:

    rockpool exec list --env python --state RUNNING
    rockpool exec list --json | jq -r '.[] | select(.outcome == "MEMORY_LIMIT") | .id'`
}

// Run lists executions.
func (c *execList) Run(s Streams) error {
	ctx, stop := stoppable()
	defer stop()
	server, err := c.Patient()
	if err != nil {
		return err
	}
	all, err := connection.Pages(func(after *string) ([]client.ListedExecution, client.PageInfo, error) {
		out, err := client.GetExecutions(ctx, server, unless(c.Env), unless(c.Runner), c.State, connection.PageSize, after)
		if err != nil {
			return nil, client.PageInfo{}, err
		}
		return out.Executions.Nodes, out.Executions.PageInfo, nil
	})
	if err != nil {
		return err
	}
	t := output.Table{Head: []string{"EXECUTION", "ENVIRONMENT", "STATE", "QUEUED", "TOOK", "COMMAND"}}
	for _, x := range all {
		t.Rows = append(t.Rows, []string{x.Id, x.EnvironmentId, state(x), output.Ago(&x.Marks.QueuedAt), took(x), short(strings.Join(x.Command, " "))})
	}
	return c.Print(s.Out, all, t)
}

func state(x client.ListedExecution) string {
	switch {
	case x.Outcome == nil:
		return string(x.State)
	case x.ExitCode != nil:
		return fmt.Sprintf("%s %d", *x.Outcome, *x.ExitCode)
	default:
		return strings.TrimSpace(string(*x.Outcome) + " " + text(x.Signal))
	}
}

func took(x client.ListedExecution) string {
	if x.Usage == nil {
		return "-"
	}
	return (time.Duration(x.Usage.WallMs) * time.Millisecond).String()
}

// short cuts a command line to what fits into a row.
func short(line string) string {
	const width = 60
	if runes := []rune(line); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return line
}

type execFollow struct {
	connection.Flags
	ID        string `arg:"" name:"execution" complete:"execution" help:"Its id."`
	FromStart bool   `default:"true" negatable:"" help:"Begin with what was printed before; with --no-from-start only what comes from now on."`
	Events    bool   `name:"json" help:"Print the events themselves, one JSON object per line, with the API's names."`
}

// Help is what its --help says beyond the flags.
func (execFollow) Help() string {
	return `Any number may follow, at any time, and leaving cancels nothing. A connection that breaks is taken up again where it was, without a byte lost or repeated.

    rockpool exec follow "$id"
    rockpool exec follow "$id" --no-from-start --json

It exits as rockpool run does: with the program's own code, 128+N, 124, 125 or 130; see there.`
}

// Run follows an execution.
func (c *execFollow) Run(s Streams) error {
	ctx, stop := stoppable()
	defer stop()
	server, err := c.Client()
	if err != nil {
		return err
	}
	f := &execution.Follower{Out: s.Out, Err: s.Err, Client: server, Execution: c.ID, Raw: c.Events}
	// Where there is nothing to follow, it is better to be told at once.
	asked := connection.Patient(server, connection.Patience)
	if _, err := client.GetEnding(ctx, asked, c.ID, 0); err != nil {
		return err
	}
	if !c.FromStart {
		if f.After, err = latest(ctx, asked, c.ID); err != nil {
			return err
		}
	}
	ended, err := f.Follow(ctx)
	switch {
	case ctx.Err() != nil:
		return ExitError(CodeInterrupted)
	case err != nil:
		return err
	}
	code, words := exitCode(ended)
	if words != "" {
		f.Say("%s", words)
	}
	return ExitError(code)
}

// latest returns the cursor after all that an execution has printed so far.
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

type execCancel struct {
	connection.Flags
	output.Format
	IDs []string `arg:"" name:"execution" complete:"execution" help:"Their ids."`
}

// Help is what its --help says beyond the flags.
func (execCancel) Help() string {
	return `The runner stays usable. One that has ended already is no error; one that nobody knows is, but the others are cancelled.

    rockpool exec cancel "$id"`
}

// Run cancels executions.
func (c *execCancel) Run(s Streams) error {
	server, err := c.Patient()
	if err != nil {
		return err
	}
	return each(s, c.Format, c.IDs, "cancelled", func(ctx context.Context, id string) (bool, error) {
		err := client.Cancel(ctx, server, id)
		return err == nil, err
	})
}
