package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
)

type ticketCommands struct {
	Show   ticketShow   `cmd:"" help:"Show a ticket: its position and estimated wait, or its runner."`
	Watch  ticketWatch  `cmd:"" help:"Wait for a ticket's runner and print the runner's id."`
	Cancel ticketCancel `cmd:"" help:"Cancel waiting tickets."`
}

type ticketShow struct {
	command.Flags
	output.Format
	ID string `arg:"" name:"ticket" help:"Id of the ticket, as rockpool runner claim --ticket prints it."`
}

func (c *ticketShow) Run(ctx context.Context, s command.Streams, server client.Sender) error {
	out, err := client.GetTicket(ctx, server, c.ID)
	if err != nil {
		return err
	}
	return c.Print(s.Out, out.Ticket, ticketTable(out.Ticket))
}

// ticketTable returns a ticket as rows of name and value. The rows depend on the ticket's state.
func ticketTable(t client.Ticket) output.Table {
	table := output.Table{Head: []string{"ticket", t.Id}, Rows: [][]string{
		{"environment", t.EnvironmentId},
		{"state", string(t.State)},
		{"created", output.Ago(&t.CreatedAt)},
	}}
	switch {
	case t.State == client.TicketStateWaiting:
		table.Rows = append(table.Rows, []string{"waits", position(t)}, []string{"expires", output.Ago(&t.ExpiresAt)})
	case t.Runner != nil:
		table.Rows = append(table.Rows, []string{"runner", t.Runner.Id})
	default:
		table.Rows = append(table.Rows, []string{"reason", ended(t).Error()})
	}
	return table
}

// position describes where in its queue a ticket waits.
func position(t client.Ticket) string {
	switch {
	case t.Position == nil:
		return "without a position yet: its tenant may have reached its quota of runners"
	case t.EstimatedWaitMs == nil:
		return fmt.Sprintf("at position %d", *t.Position)
	default:
		return fmt.Sprintf("at position %d, for about %v", *t.Position, estimate(*t.EstimatedWaitMs))
	}
}

// estimate converts an estimated wait in milliseconds to whole seconds, at least 1 s.
func estimate(ms float64) time.Duration {
	return max(time.Duration(ms*float64(time.Millisecond)).Round(time.Second), time.Second)
}

// ended returns the error for a ticket that ended without a runner: why, and what to do.
func ended(t client.Ticket) error {
	switch {
	case t.State == client.TicketStateClaimed:
		return fmt.Errorf("the runner of ticket %s is gone: claim again", t.Id)
	case t.State == client.TicketStateExpired:
		return fmt.Errorf("ticket %s is EXPIRED: %s; claim again, with a longer --wait", t.Id, command.Text(t.Message))
	case t.Message != nil:
		return fmt.Errorf("ticket %s is %s: %s", t.Id, t.State, *t.Message)
	default:
		return fmt.Errorf("ticket %s is %s: claim again", t.Id, t.State)
	}
}

type ticketWatch struct {
	command.Flags
	JSON bool   `name:"json" help:"Print the ticket after each change, one JSON object per line, with the API's names."`
	ID   string `arg:"" name:"ticket" help:"Id of the ticket, as rockpool runner claim --ticket prints it."`
}

// watchEvery is the interval at which ticket watch polls the server.
const watchEvery = 500 * time.Millisecond

// Run watches a ticket until it has its runner.
func (c *ticketWatch) Run(ctx context.Context, s command.Streams, server client.Sender) error {
	again := time.NewTicker(watchEvery)
	defer again.Stop()
	w := ticketView{out: s.Out, json: c.JSON, status: command.NewStatus(s.Err)}
	defer w.status.End()
	for {
		out, err := client.GetTicket(ctx, server, c.ID)
		if err != nil {
			return err
		}
		if done, err := w.show(out.Ticket); done || err != nil {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			w.status.End()
			_, _ = fmt.Fprintln(s.Err, "rockpool: the server cancels the ticket in 30 s, unless you watch it again")
			return ctx.Err()
		}
	}
}

// A ticketView prints a ticket's changes.
type ticketView struct {
	out     io.Writer
	json    bool
	status  *command.Status
	printed string
}

// show prints the ticket if it changed. done reports that it no longer waits; err says why it has no runner.
func (v *ticketView) show(t client.Ticket) (done bool, err error) {
	waits := t.State == client.TicketStateWaiting
	// The ticket is polled: only a change is worth a line.
	if now := string(t.State) + position(t); now != v.printed {
		v.printed = now
		if v.json {
			if err := output.JSONLine(v.out, t); err != nil {
				return true, err
			}
		}
		if waits {
			v.status.Show("waiting for a runner of " + t.EnvironmentId + ", " + position(t))
		}
	}
	if waits {
		return false, nil
	}
	v.status.End()
	switch {
	case t.Runner == nil:
		return true, ended(t)
	case v.json:
		return true, nil
	}
	_, err = fmt.Fprintln(v.out, t.Runner.Id)
	return true, err
}

type ticketCancel struct {
	command.Flags
	output.Format
	IDs []string `arg:"" name:"ticket" help:"Ids of the tickets."`
}

func (c *ticketCancel) Run(ctx context.Context, s command.Streams, server client.Sender) error {
	return command.Each(ctx, s, c.Format, c.IDs, "cancelled", "has already ended", func(ctx context.Context, id string) (bool, error) {
		out, err := client.CancelTicket(ctx, server, id)
		if err != nil {
			return false, err
		}
		if t := out.CancelTicket.Ticket; t.State == client.TicketStateClaimed {
			if t.Runner == nil {
				return false, errors.New("its runner is already gone")
			}
			return false, fmt.Errorf("it already has a runner: release it with `rockpool runner release %s`", t.Runner.Id)
		}
		return true, nil
	})
}

type queueCommand struct {
	command.Flags
	output.Format
	Env    string `short:"e" complete:"environment" placeholder:"ENVIRONMENT" help:"Only claims for this environment."`
	Tenant string `placeholder:"NAME" help:"Only claims of this tenant."`
}

func (c *queueCommand) Run(ctx context.Context, s command.Streams, server client.Sender) error {
	all, err := command.Pages(func(after *string) ([]client.WaitingClaim, client.PageInfo, error) {
		out, err := client.GetWaitingClaims(ctx, server, command.Optional(c.Tenant), command.Optional(c.Env), command.PageSize, after)
		return out.WaitingClaims.Nodes, out.WaitingClaims.PageInfo, err
	})
	if err != nil {
		return err
	}
	return c.List(s.Out, s.Err, all, queueTable(all), "no claims are waiting")
}

// queueTable sorts claims by environment and position, those without a position last.
func queueTable(all []client.WaitingClaim) output.Table {
	slices.SortStableFunc(all, func(a, b client.WaitingClaim) int {
		return cmp.Or(cmp.Compare(a.EnvironmentId, b.EnvironmentId), cmp.Compare(turn(a), turn(b)))
	})
	t := output.Table{Head: []string{"ENVIRONMENT", "POSITION", "ESTIMATE", "TENANT", "SINCE", "EXPIRES"}}
	for _, w := range all {
		position, wait := "-", "-"
		if w.Position != nil {
			position = strconv.Itoa(*w.Position)
		}
		if w.EstimatedWaitMs != nil {
			wait = estimate(*w.EstimatedWaitMs).String()
		}
		t.Rows = append(t.Rows, []string{w.EnvironmentId, position, wait, w.Tenant, output.Ago(&w.Since), output.Ago(&w.ExpiresAt)})
	}
	return t
}

// turn returns a claim's position for sorting. Claims without one come last.
func turn(w client.WaitingClaim) int {
	if w.Position == nil {
		return math.MaxInt
	}
	return *w.Position
}
