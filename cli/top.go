package cli

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/rockpool/rockpool/cli/connection"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/cli/terminal"
	"github.com/rockpool/rockpool/cli/top"
	"github.com/rockpool/rockpool/client"
)

type topCommand struct {
	connection.Flags
	output.Format
	Env  string `short:"e" complete:"environment" placeholder:"ENVIRONMENT" help:"Only executions in runners of this environment."`
	Sort string `enum:"cpu,memory,elapsed,processes,output" default:"cpu" placeholder:"COLUMN" help:"Sort by this column, the largest first: ${enum}. (${default})"`
	Once bool   `help:"Print one table and exit. This is the default with --json and without a terminal."`
}

// Run shows the running executions.
func (c *topCommand) Run(ctx context.Context, s Streams, server client.Sender) error {
	view := &top.View{Sort: c.Sort}
	all, table, err := c.fetch(ctx, server, view)
	if err != nil {
		return err
	}
	if c.Once || c.JSON || c.Output != "table" {
		return c.Print(s.Out, all, table)
	}
	screen, err := terminal.OpenScreen(s.In, s.Out)
	if err != nil {
		return err
	}
	if screen == nil {
		return c.Print(s.Out, all, table)
	}
	defer screen.Close()
	for trouble := ""; ; {
		next := time.Now().Add(time.Second)
		if err := screen.Draw(page(all, table, trouble)); err != nil {
			return err
		}
		if key := screen.Key(ctx, next); key == 'q' || ctx.Err() != nil {
			return nil
		}
		now, rows, err := c.fetch(ctx, server, view)
		trouble = ""
		if err != nil {
			trouble = "not up to date: " + output.Plain(err.Error())
			continue
		}
		all, table = now, rows
	}
}

// fetch returns the running executions, sorted, and their table.
func (c *topCommand) fetch(ctx context.Context, server client.Sender, view *top.View) ([]client.RunningExecution, output.Table, error) {
	all, err := connection.Pages(func(after *string) ([]client.RunningExecution, client.PageInfo, error) {
		out, err := client.GetRunning(ctx, server, optional(c.Env), connection.LabelledPage, after)
		if err != nil {
			return nil, client.PageInfo{}, err
		}
		return out.Executions.Nodes, out.Executions.PageInfo, nil
	})
	if err != nil {
		return nil, output.Table{}, err
	}
	sorted, table := view.Table(all, time.Now())
	return sorted, table, nil
}

// page returns the lines of the screen.
func page(all []client.RunningExecution, table output.Table, trouble string) []string {
	var text bytes.Buffer
	_ = output.Format{Output: "table"}.Print(&text, nil, table) // a buffer never fails
	head := []string{"rockpool top: " + top.Summary(all, table) + ". q exits.", trouble}
	return append(head, strings.Split(strings.TrimRight(text.String(), "\n"), "\n")...)
}
