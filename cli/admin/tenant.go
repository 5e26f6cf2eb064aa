package admin

import (
	"context"
	"fmt"
	"strconv"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
)

// TenantCommands are those of rockpool tenant.
type TenantCommands struct {
	List   tenantList   `cmd:"" help:"List tenants with their quotas and use."`
	Put    tenantPut    `cmd:"" help:"Create or change a tenant."`
	Delete tenantDelete `cmd:"" help:"Delete tenants that have no environments, and revoke their tokens."`
}

type tenantList struct {
	command.Flags
	output.Format
}

func (c *tenantList) Run(ctx context.Context, s command.Streams, server client.Sender) error {
	out, err := client.GetTenants(ctx, server)
	if err != nil {
		return err
	}
	t := output.Table{Head: []string{"TENANT", "WEIGHT", "RUNNERS", "WAITING", "EXECUTIONS", "CLAIMS/MIN", "CPU S/DAY", "OUTPUT BYTES/DAY", "SUBSCRIPTIONS", "POOL RUNNERS", "MEMORY MIB", "CPU MHZ"}}
	for _, tenant := range out.Tenants {
		q, use := tenant.Quotas, tenant.Use
		t.Rows = append(t.Rows, []string{
			tenant.Id, strconv.Itoa(tenant.Weight), used(use.Runners, q.Runners), used(use.Waiting, q.Waiting), used(use.Executions, q.Executions),
			used(use.ClaimsPerMinute, q.ClaimsPerMinute), used(use.CpuSecondsPerDay, q.CpuSecondsPerDay), used(use.OutputBytesPerDay, q.OutputBytesPerDay),
			used(use.Subscriptions, q.Subscriptions), used(use.PoolRunners, q.PoolRunners), used(use.MemoryMiB, q.MemoryMiB), used(use.CpuMHz, q.CpuMHz),
		})
	}
	return c.List(s.Out, s.Err, out.Tenants, t, "no tenants: create one with `rockpool tenant put NAME`")
}

// used formats a use: "USED/QUOTA", or "USED" without a quota.
func used[N int | int64](n int64, limit *N) string {
	if limit == nil {
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("%d/%d", n, *limit)
}

type tenantPut struct {
	command.Flags
	output.Format
	ID                string `arg:"" name:"tenant" help:"Name of the tenant: 1 to 63 lower-case letters, digits and hyphens."`
	Weight            *int   `placeholder:"N" help:"Weight in the queue: waiting claims get N turns for each turn of a tenant of weight 1; 1 to 1000. (unchanged; for a new tenant 1)"`
	NoQuotas          bool   `help:"Remove all quotas that you don't give here. Without it, they stay."`
	Runners           *int   `placeholder:"N" help:"Quota: runners claimed at the same time."`
	Waiting           *int   `placeholder:"N" help:"Quota: claims that wait at the same time."`
	Executions        *int   `placeholder:"N" help:"Quota: executions that run or wait at the same time."`
	ClaimsPerMinute   *int   `placeholder:"N" help:"Quota: claims within any 60 seconds."`
	CPUSecondsPerDay  *int64 `name:"cpu-seconds-per-day" type:"time" from:"0" to:"106751d" placeholder:"TIME" help:"Quota: CPU time of the executions that end on one day (UTC)."`
	OutputBytesPerDay *int64 `type:"size" from:"0" to:"1PiB" placeholder:"SIZE" help:"Quota: output of the executions that end on one day (UTC)."`
	Subscriptions     *int   `placeholder:"N" help:"Quota: subscriptions at the same time."`
	PoolRunners       *int   `placeholder:"N" help:"Quota: pool sizes of all environments together."`
	MemoryMiB         *int64 `name:"memory-mib" placeholder:"N" help:"Quota: memory in MiB that pools and held runners reserve."`
	CPUMHz            *int64 `name:"cpu-mhz" placeholder:"N" help:"Quota: CPU in MHz that pools and held runners reserve."`
}

func (c *tenantPut) Run(ctx context.Context, s command.Streams, server client.Sender) error {
	stored, err := client.GetTenants(ctx, server)
	if err != nil {
		return err
	}
	// Quotas that aren't given keep their stored value, unless --no-quotas is given.
	var quotas client.QuotasInput
	for _, tenant := range stored.Tenants {
		if tenant.Id == c.ID && !c.NoQuotas {
			quotas = client.QuotasInput(tenant.Quotas)
		}
	}
	command.Override(&quotas.Runners, c.Runners)
	command.Override(&quotas.Waiting, c.Waiting)
	command.Override(&quotas.Executions, c.Executions)
	command.Override(&quotas.ClaimsPerMinute, c.ClaimsPerMinute)
	command.Override(&quotas.CpuSecondsPerDay, c.CPUSecondsPerDay)
	command.Override(&quotas.OutputBytesPerDay, c.OutputBytesPerDay)
	command.Override(&quotas.Subscriptions, c.Subscriptions)
	command.Override(&quotas.PoolRunners, c.PoolRunners)
	command.Override(&quotas.MemoryMiB, c.MemoryMiB)
	command.Override(&quotas.CpuMHz, c.CPUMHz)
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

type tenantDelete struct {
	command.Flags
	output.Format
	IDs []string `arg:"" name:"tenant" help:"Names of the tenants."`
}

func (c *tenantDelete) Run(ctx context.Context, s command.Streams, server client.Sender) error {
	return command.Each(ctx, s, c.Format, c.IDs, "deleted", "doesn't exist", func(ctx context.Context, id string) (bool, error) {
		out, err := client.DeleteTenant(ctx, server, id)
		return err == nil && out.DeleteTenant.Deleted, err
	})
}
