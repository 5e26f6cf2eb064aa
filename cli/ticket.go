package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rockpool/rockpool/cli/connection"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
)

type ticketCommands struct {
	Show   ticketShow   `cmd:"" help:"Show a ticket: its position and estimated wait, or its runner."`
	Watch  ticketWatch  `cmd:"" help:"Wait for a ticket's runner and print the runner's id."`
	Cancel ticketCancel `cmd:"" help:"Cancel waiting tickets."`
}

type ticketShow struct {
	connection.Flags
	output.Format
	ID string `arg:"" name:"ticket" help:"Id of the ticket, as rockpool runner claim --ticket prints it."`
}

// Run shows a ticket.
func (c *ticketShow) Run(ctx context.Context, s Streams, server client.Sender) error {
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
		return fmt.Errorf("ticket %s is EXPIRED: %s; claim again, with a longer --wait", t.Id, text(t.Message))
	case t.Message != nil:
		return fmt.Errorf("ticket %s is %s: %s", t.Id, t.State, *t.Message)
	default:
		return fmt.Errorf("ticket %s is %s: claim again", t.Id, t.State)
	}
}

type ticketWatch struct {
	connection.Flags
	JSON bool   `name:"json" help:"Print the ticket after each change, one JSON object per line, with the API's names."`
	ID   string `arg:"" name:"ticket" help:"Id of the ticket, as rockpool runner claim --ticket prints it."`
}

// watchEvery is the interval at which ticket watch polls the server.
const watchEvery = 500 * time.Millisecond

// Run watches a ticket until it has its runner.
func (c *ticketWatch) Run(ctx context.Context, s Streams, server client.Sender) error {
	again := time.NewTicker(watchEvery)
	defer again.Stop()
	w := ticketView{out: s.Out, json: c.JSON, status: newStatus(s.Err)}
	defer w.status.end()
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
			w.status.end()
			_, _ = fmt.Fprintln(s.Err, "rockpool: the server cancels the ticket in 30 s, unless you watch it again")
			return ctx.Err()
		}
	}
}

// A ticketView prints a ticket's changes.
type ticketView struct {
	out     io.Writer
	json    bool
	status  *status
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
			v.status.show("waiting for a runner of " + t.EnvironmentId + ", " + position(t))
		}
	}
	if waits {
		return false, nil
	}
	v.status.end()
	switch {
	case t.Runner == nil:
		return true, ended(t)
	case v.json:
		return true, nil
	}
	_, err = fmt.Fprintln(v.out, t.Runner.Id)
	return true, err
}

// A status is a progress line. On a terminal, the next one replaces it.
type status struct {
	out      io.Writer
	terminal bool
	open     bool // a line is on the terminal
}

// newStatus returns a status that writes to errs.
func newStatus(errs io.Writer) *status {
	return &status{out: errs, terminal: output.OnTerminal(errs)}
}

// show replaces the status line on a terminal. Otherwise it prints a line.
func (s *status) show(text string) {
	text = "rockpool: " + output.Plain(text)
	if s.terminal {
		s.open = true
		_, _ = io.WriteString(s.out, "\r\x1b[K"+text)
		return
	}
	_, _ = fmt.Fprintln(s.out, text)
}

// end removes the line from a terminal.
func (s *status) end() {
	if s.open {
		s.open = false
		_, _ = io.WriteString(s.out, "\r\x1b[K")
	}
}

type ticketCancel struct {
	connection.Flags
	output.Format
	IDs []string `arg:"" name:"ticket" help:"Ids of the tickets."`
}

// Run cancels tickets.
func (c *ticketCancel) Run(ctx context.Context, s Streams, server client.Sender) error {
	return each(ctx, s, c.Format, c.IDs, "cancelled", "has already ended", func(ctx context.Context, id string) (bool, error) {
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
