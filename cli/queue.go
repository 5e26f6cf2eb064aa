package cli

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"

	"github.com/rockpool/rockpool/cli/connection"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
)

type queueCommand struct {
	connection.Flags
	output.Format
	Env    string `short:"e" complete:"environment" placeholder:"ENVIRONMENT" help:"Only claims for this environment."`
	Tenant string `placeholder:"NAME" help:"Only claims of this tenant."`
}

// Run lists the claims that wait.
func (c *queueCommand) Run(ctx context.Context, s Streams, server client.Sender) error {
	all, err := connection.Pages(func(after *string) ([]client.WaitingClaim, client.PageInfo, error) {
		out, err := client.GetWaitingClaims(ctx, server, optional(c.Tenant), optional(c.Env), connection.PageSize, after)
		if err != nil {
			return nil, client.PageInfo{}, err
		}
		return out.WaitingClaims.Nodes, out.WaitingClaims.PageInfo, nil
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
