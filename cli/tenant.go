package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/rockpool/rockpool/cli/connection"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
)

type tenantCommands struct {
	List   tenantList   `cmd:"" help:"List the tenants, their quotas and what they use."`
	Put    tenantPut    `cmd:"" help:"Create a tenant, or change one."`
	Delete tenantDelete `cmd:"" help:"Delete tenants that have no environments, and revoke their tokens."`
}

// Help returns the description and examples for rockpool tenant --help.
func (tenantCommands) Help() string {
	return `A tenant is a group of callers that see and use only what is theirs.

    rockpool tenant put physics --runners 20 --claims-per-minute 300
    rockpool token create codeocean --role CLIENT --tenant physics`
}

type tenantList struct {
	connection.Flags
	output.Format
}

// Help returns the description and examples for --help.
func (tenantList) Help() string {
	return `Examples:

    rockpool tenant list
    rockpool tenant list --json | jq '.[] | {id, use}'`
}

// Run lists the tenants.
func (c *tenantList) Run(s Streams) error {
	ctx, stop := stoppable()
	defer stop()
	server, err := c.Patient()
	if err != nil {
		return err
	}
	out, err := client.GetTenants(ctx, server)
	if err != nil {
		return err
	}
	t := output.Table{Head: []string{"TENANT", "WEIGHT", "RUNNERS", "WAITING", "EXECUTIONS", "CLAIMS/MIN", "CPU S/DAY", "OUTPUT BYTES/DAY", "SUBSCRIPTIONS"}}
	for _, tenant := range out.Tenants {
		q, use := tenant.Quotas, tenant.Use
		t.Rows = append(t.Rows, []string{
			tenant.Id, strconv.Itoa(tenant.Weight), used(use.Runners, q.Runners), used(use.Waiting, q.Waiting), used(use.Executions, q.Executions),
			used(use.ClaimsPerMinute, q.ClaimsPerMinute), used(use.CpuSecondsPerDay, q.CpuSecondsPerDay), used(use.OutputBytesPerDay, q.OutputBytesPerDay),
			used(use.Subscriptions, q.Subscriptions),
		})
	}
	return c.List(s.Out, s.Err, out.Tenants, t, "no tenants: `rockpool tenant put NAME` makes one")
}

// used shows what is used, and of how many, if there is a quota.
func used[N int | int64](n int64, limit *N) string {
	if limit == nil {
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("%d/%d", n, *limit)
}

type tenantPut struct {
	connection.Flags
	output.Format
	ID                string `arg:"" name:"tenant" help:"Its name: 1 to 63 small letters, digits and hyphens."`
	Weight            *int   `placeholder:"N" help:"Turns that its waiting claims get for each turn of a tenant of weight 1: 1 to 1000. Else it stays; 1 for a new one."`
	NoQuotas          bool   `help:"Remove all quotas but those given here; else quotas that aren't given stay."`
	Runners           *int   `placeholder:"N" help:"Runners held at once."`
	Waiting           *int   `placeholder:"N" help:"Claims that wait at once."`
	Executions        *int   `placeholder:"N" help:"Executions that haven't ended, at once."`
	ClaimsPerMinute   *int   `placeholder:"N" help:"Claims in any 60 seconds."`
	CPUSecondsPerDay  *int64 `name:"cpu-seconds-per-day" type:"time" from:"0" to:"106751d" placeholder:"TIME" help:"Processor seconds of executions that end on a day (UTC)."`
	OutputBytesPerDay *int64 `type:"size" from:"0" to:"1PiB" placeholder:"SIZE" help:"Bytes that executions that end on a day (UTC) printed."`
	Subscriptions     *int   `placeholder:"N" help:"Subscriptions at once."`
}

// Help returns the description and examples for --help.
func (tenantPut) Help() string {
	return `Examples:

    rockpool tenant put physics --runners 20 --claims-per-minute 300 --weight 2
    rockpool tenant put physics --no-quotas`
}

// Run puts a tenant.
func (c *tenantPut) Run(s Streams) error {
	ctx, stop := stoppable()
	defer stop()
	server, err := c.Patient()
	if err != nil {
		return err
	}
	stored, err := client.GetTenants(ctx, server)
	if err != nil {
		return err
	}
	var quotas client.QuotasInput
	for _, tenant := range stored.Tenants {
		if tenant.Id == c.ID && !c.NoQuotas {
			quotas = client.QuotasInput(tenant.Quotas)
		}
	}
	override(&quotas.Runners, c.Runners)
	override(&quotas.Waiting, c.Waiting)
	override(&quotas.Executions, c.Executions)
	override(&quotas.ClaimsPerMinute, c.ClaimsPerMinute)
	override(&quotas.CpuSecondsPerDay, c.CPUSecondsPerDay)
	override(&quotas.OutputBytesPerDay, c.OutputBytesPerDay)
	override(&quotas.Subscriptions, c.Subscriptions)
	out, err := client.PutTenant(ctx, server, client.PutTenantInput{Id: c.ID, Weight: c.Weight, Quotas: &quotas})
	if err != nil {
		return err
	}
	did := "changed"
	if out.PutTenant.Created {
		did = "created"
	}
	return c.Print(s.Out, out.PutTenant, output.Table{Head: []string{fmt.Sprintf("tenant %s: %s", c.ID, did)}})
}

// override takes a flag's value, if it was given.
func override[N any](to **N, flag *N) {
	if flag != nil {
		*to = flag
	}
}

type tenantDelete struct {
	connection.Flags
	output.Format
	IDs []string `arg:"" name:"tenant" help:"Their names."`
}

// Help returns the description and examples for --help.
func (tenantDelete) Help() string {
	return `What the tenants' executions printed is kept as long as others'. One that isn't there is an error, but the others are deleted.

    rockpool tenant delete physics`
}

// Run deletes tenants.
func (c *tenantDelete) Run(s Streams) error {
	server, err := c.Patient()
	if err != nil {
		return err
	}
	return each(s, c.Format, c.IDs, "deleted", func(ctx context.Context, id string) (bool, error) {
		out, err := client.DeleteTenant(ctx, server, id)
		return err == nil && out.DeleteTenant.Deleted, err
	})
}
