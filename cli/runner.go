package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/cli/execution"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

type runnerCommands struct {
	List    runnerList    `cmd:"" help:"List runners."`
	Claim   runnerClaim   `cmd:"" help:"Claim a runner and print its id."`
	Release runnerRelease `cmd:"" help:"Release claimed runners: end them and their executions."`
	Exec    runnerExec    `cmd:"" help:"Run a command in a claimed runner and exit with its code."`
	Shell   runnerShell   `cmd:"" help:"Open a shell in a runner."`
	Copy    runnerCopy    `cmd:"" name:"cp" help:"Copy files into or out of a runner."`
	Find    runnerFind    `cmd:"" help:"Find files in a runner by name or content."`
	Watch   runnerWatch   `cmd:"" help:"Watch a runner's files and print each change."`
}

type runnerList struct {
	command.Flags
	output.Format
	Env   string                `short:"e" complete:"environment" placeholder:"ENVIRONMENT" help:"Only runners of this environment."`
	State []runtime.RunnerState `placeholder:"STATE" enum:"STARTING,IDLE,CLAIMING,CLAIMED,STOPPING,GONE" help:"Only runners in this state: ${enum}. Can be given more than once."`
	Label []string              `placeholder:"NAME=VALUE" sep:"none" help:"Only runners whose claim has this label; NAME alone: with any value. Can be given more than once: all must match."`
}

func (c *runnerList) Run(ctx context.Context, s command.Streams, server client.Sender) error {
	wanted, err := labelFilters(c.Label)
	if err != nil {
		return err
	}
	all, err := command.Pages(func(after *string) ([]client.ListedRunner, client.PageInfo, error) {
		out, err := client.GetRunners(ctx, server, command.Optional(c.Env), c.State, wanted, command.LabelledPage, after)
		return out.Runners.Nodes, out.Runners.PageInfo, err
	})
	if err != nil {
		return err
	}
	// An empty list could mean a mistyped environment: the error says so.
	if len(all) == 0 && c.Env != "" {
		out, err := client.GetEnvironment(ctx, server, c.Env)
		if err != nil {
			return err
		}
		if out.Environment == nil {
			return command.NoEnvironment(ctx, server, c.Env)
		}
	}
	t := output.Table{Head: []string{"RUNNER", "ENVIRONMENT", "STATE", "CREATED", "EXPIRES", "LABELS", "MESSAGE"}}
	for _, r := range all {
		expires, labels := "-", ""
		if r.Claim != nil {
			expires, labels = output.Ago(r.Claim.ExpiresAt), labelText(r.Claim.Labels)
		}
		state := string(r.State)
		if r.GoneReason != nil {
			state += " (" + string(*r.GoneReason) + ")"
		}
		t.Rows = append(t.Rows, []string{r.Id, fmt.Sprintf("%s @%d", r.EnvironmentId, r.Revision), state, output.Ago(&r.CreatedAt), expires, labels, command.Text(r.Message)})
	}
	return c.List(s.Out, s.Err, all, t, "no runners: claim one with `rockpool runner claim ENVIRONMENT`")
}

type runnerClaim struct {
	command.Flags
	JSON    bool           `name:"json" help:"Print the runner or the ticket as JSON, with the API's names, instead of its id."`
	Env     string         `arg:"" name:"environment" complete:"environment" help:"Environment of the runner."`
	Wait    *time.Duration `from:"0" to:"1h" placeholder:"TIME" help:"How long to wait if no runner is idle, 0 to 1h. (30s; with --ticket 1h)"`
	Ticket  bool           `help:"Claim in the background: print the id of a ticket immediately. rockpool ticket watch waits for the runner."`
	Timeout time.Duration  `default:"10m" from:"0" to:"720h" placeholder:"TIME" help:"Release the runner when it hasn't been used for this time, up to 720h; 0: never. (${default})"`
	Label   []string       `placeholder:"NAME=VALUE" sep:"none" help:"Label of the claim, for searches. Can be given more than once."`
	Key     string         `xor:"session" placeholder:"TEXT" help:"Idempotency key: repeating the command with the same key returns the same runner."`
	Holder  *string        `xor:"session" placeholder:"TEXT" help:"Holder: the same holder gets the same runner while it exists, then a new one."`
}

func (c *runnerClaim) Run(ctx context.Context, s command.Streams, server *client.Client) error {
	request, err := c.request()
	if err != nil {
		return err
	}
	if c.Ticket {
		return c.claimLater(ctx, s, server, request)
	}
	id, err := execution.Claim(ctx, s.Err, server, request)
	if err != nil {
		return err
	}
	if !c.JSON {
		_, err = fmt.Fprintln(s.Out, id)
		return err
	}
	out, err := client.GetRunner(ctx, command.Patient(server, command.Patience), id)
	if err != nil {
		return err
	}
	return output.Format{JSON: true}.Print(s.Out, out.Runner, output.Table{})
}

// claimLater creates a ticket and prints it. It doesn't wait for the runner.
func (c *runnerClaim) claimLater(ctx context.Context, s command.Streams, server *client.Client, request execution.Request) error {
	ticket, err := execution.ClaimLater(ctx, server, request)
	if err != nil {
		return err
	}
	if c.JSON {
		return output.Format{JSON: true}.Print(s.Out, ticket, output.Table{})
	}
	_, err = fmt.Fprintln(s.Out, ticket.Id)
	return err
}

// How long a claim waits without --wait.
const (
	claimWait  = 30 * time.Second
	ticketWait = time.Hour
)

// request turns the flags into a request. The API counts in whole seconds, so it refuses fractions.
func (c *runnerClaim) request() (execution.Request, error) {
	wait := claimWait
	switch {
	case c.Wait != nil:
		wait = *c.Wait
	case c.Ticket:
		wait = ticketWait
	}
	request := execution.Request{Environment: c.Env, Timeout: int(c.Timeout / time.Second), Wait: wait, Key: c.Key, Holder: c.Holder}
	var err error
	if request.Labels, err = pairs[client.LabelInput]("--label", c.Label); err != nil {
		return request, err
	}
	for _, d := range []struct {
		flag string
		time.Duration
	}{{"wait", wait}, {"timeout", c.Timeout}} {
		if d.Duration%time.Second != 0 {
			return request, fmt.Errorf("--%s is %v, but must be whole seconds", d.flag, d.Duration)
		}
	}
	return request, nil
}

type runnerRelease struct {
	command.Flags
	output.Format
	IDs []string `arg:"" name:"runner" complete:"runner" help:"Ids of the runners."`
}

func (c *runnerRelease) Run(ctx context.Context, s command.Streams, server client.Sender) error {
	return command.Each(ctx, s, c.Format, c.IDs, "released", "doesn't exist, or isn't claimed any longer", func(ctx context.Context, id string) (bool, error) {
		out, err := client.ReleaseRunner(ctx, server, id)
		return err == nil && out.ReleaseRunner.Released, err
	})
}
