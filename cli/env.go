package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

type envCommands struct {
	List   envList   `cmd:"" help:"List the environments."`
	Show   envShow   `cmd:"" help:"Show one environment with its pool."`
	Put    envPut    `cmd:"" help:"Create an environment, or change one."`
	Delete envDelete `cmd:"" help:"Delete environments."`
}

// Help is what rockpool env --help says beyond its commands.
func (envCommands) Help() string {
	return `Examples:

    rockpool env list
    rockpool env put ruby --memory 512 --pool-size 4
    rockpool env show ruby -o yaml > ruby.yaml    # edit it, and then
    rockpool env put -f ruby.yaml                 # refused if somebody changed it meanwhile`
}

const environmentFields = ` id revision image poolSize resources { cpuMHz memoryMiB processes workspaceMiB }
	network { access exposedPorts allow allowNames bandwidthMbit } isolation runtime variables { name value } defaultTimeLimit outputLimit
	pool { size idle starting claimed stopping waiting reason } `

// An environment is what tables show of one.
type environment struct {
	ID        string
	Revision  int
	Image     string
	Resources struct{ CPUMHz, MemoryMiB, Processes, WorkspaceMiB int }
	Network   struct {
		Access            bool
		ExposedPorts      []int
		Allow, AllowNames []string
		BandwidthMbit     int
	}
	Isolation        string
	Runtime          string
	Variables        []struct{ Name, Value string }
	DefaultTimeLimit int
	OutputLimit      int64
	Pool             struct {
		Size, Idle, Starting, Claimed, Stopping, Waiting int
		Reason                                           string
	}
}

type envList struct {
	serverFlag
	outputFlag
}

// Help is what its --help says beyond the flags.
func (envList) Help() string {
	return `Examples:

    rockpool env list
    rockpool env list --json | jq -r '.[].id'`
}

// Run lists the environments.
func (c *envList) Run(s Streams) error {
	ctx, stop := stoppable()
	defer stop()
	server, err := c.client()
	if err != nil {
		return err
	}
	var out struct{ Environments []json.RawMessage }
	if err := ask(ctx, server, `{ environments {`+environmentFields+`} }`, nil, &out); err != nil {
		return err
	}
	all, err := both[environment](out.Environments)
	if err != nil {
		return err
	}
	t := table{head: []string{"ENVIRONMENT", "IMAGE", "IDLE", "CLAIMED", "MEMORY", "CPU", "PROCESSES", "TIME LIMIT", ""}}
	for _, e := range all {
		t.rows = append(t.rows, []string{
			e.ID, e.Image, fmt.Sprintf("%d/%d", e.Pool.Idle, e.Pool.Size), strconv.Itoa(e.Pool.Claimed),
			fmt.Sprintf("%d MiB", e.Resources.MemoryMiB), fmt.Sprintf("%d MHz", e.Resources.CPUMHz), strconv.Itoa(e.Resources.Processes),
			seconds(e.DefaultTimeLimit), e.Pool.Reason,
		})
	}
	return c.print(s.Out, out.Environments, t)
}

func seconds(n int) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprintf("%d s", n)
}

type envShow struct {
	serverFlag
	outputFlag
	ID string `arg:"" name:"environment" complete:"environment" help:"Its id."`
}

// Help is what its --help says beyond the flags.
func (envShow) Help() string {
	return `Examples:

    rockpool env show python
    rockpool env show python -o yaml`
}

// Run shows an environment.
func (c *envShow) Run(s Streams) error {
	ctx, stop := stoppable()
	defer stop()
	server, err := c.client()
	if err != nil {
		return err
	}
	var out struct{ Environment json.RawMessage }
	if err := ask(ctx, server, `query($id: ID!) { environment(id: $id) {`+environmentFields+`} }`, map[string]any{"id": c.ID}, &out); err != nil {
		return err
	}
	if string(out.Environment) == "null" {
		return fmt.Errorf("there is no environment %q; `rockpool env list` lists those that there are", c.ID)
	}
	all, err := both[environment]([]json.RawMessage{out.Environment})
	if err != nil {
		return err
	}
	return c.print(s.Out, out.Environment, all[0].table())
}

// reach says what of the network programs reach.
func (e environment) reach() string {
	reach := "none"
	if e.Network.Access {
		reach = "yes"
	}
	if only := append(slices.Clone(e.Network.Allow), e.Network.AllowNames...); len(only) > 0 {
		reach = "only " + strings.Join(only, ", ")
	}
	if e.Network.BandwidthMbit > 0 {
		reach += fmt.Sprintf(", %d Mbit/s", e.Network.BandwidthMbit)
	}
	return reach
}

func (e environment) table() table {
	ports := make([]string, len(e.Network.ExposedPorts))
	for i, port := range e.Network.ExposedPorts {
		ports[i] = strconv.Itoa(port)
	}
	t := table{head: []string{"environment", e.ID}, rows: [][]string{
		{"revision", strconv.Itoa(e.Revision)},
		{"image", e.Image},
		{"isolation", strings.TrimSuffix(e.Isolation+", by "+e.Runtime, ", by ")},
		{"CPU", fmt.Sprintf("%d MHz", e.Resources.CPUMHz)},
		{"memory", fmt.Sprintf("%d MiB", e.Resources.MemoryMiB)},
		{"processes", strconv.Itoa(e.Resources.Processes)},
		{"workspace", fmt.Sprintf("%d MiB", e.Resources.WorkspaceMiB)},
		{"network", e.reach()},
		{"exposed ports", strings.Join(ports, ", ")},
		{"time limit", seconds(e.DefaultTimeLimit)},
		{"output limit", fmt.Sprintf("%d bytes", e.OutputLimit)},
		{"pool", fmt.Sprintf("%d of %d idle, %d starting, %d claimed, %d stopping, %d waiting",
			e.Pool.Idle, e.Pool.Size, e.Pool.Starting, e.Pool.Claimed, e.Pool.Stopping, e.Pool.Waiting)},
	}}
	if e.Pool.Reason != "" {
		t.rows = append(t.rows, []string{"", e.Pool.Reason})
	}
	for _, v := range e.Variables {
		t.rows = append(t.rows, []string{"variable", v.Name + "=" + v.Value})
	}
	return t
}

type envDelete struct {
	serverFlag
	outputFlag
	IDs        []string `arg:"" name:"environment" complete:"environment" help:"Their ids."`
	EndClaimed bool     `help:"End their claimed runners too; else those end as they would."`
}

// Help is what its --help says beyond the flags.
func (envDelete) Help() string {
	return `Idle runners go at once. One that isn't there is an error, but the others are deleted.

    rockpool env delete ruby
    rockpool env delete ruby perl --end-claimed`
}

// Run deletes environments.
func (c *envDelete) Run(s Streams) error {
	const mutation = `mutation($in: DeleteEnvironmentInput!) { deleteEnvironment(input: $in) { deleted } }`
	server, err := c.client()
	if err != nil {
		return err
	}
	return c.each(s, c.IDs, "deleted", func(ctx context.Context, id string) (bool, error) {
		var out struct{ DeleteEnvironment struct{ Deleted bool } }
		err := ask(ctx, server, mutation, map[string]any{"in": map[string]any{"id": id, "endClaimed": c.EndClaimed}}, &out)
		return out.DeleteEnvironment.Deleted, err
	})
}

// each does something to everything that was named, says so, and fails at its
// end if one wasn't there or could not be done.
func (f outputFlag) each(s Streams, ids []string, done string, do func(ctx context.Context, id string) (bool, error)) error {
	ctx, stop := stoppable()
	defer stop()
	var all []map[string]any
	t := table{head: []string{"ID", strings.ToUpper(done)}}
	var failed []error
	for _, id := range ids {
		was, err := do(ctx, id)
		switch {
		case err != nil:
			failed = append(failed, fmt.Errorf("%s: %w", id, err))
		case !was:
			failed = append(failed, fmt.Errorf("%s isn't there", id))
		}
		all = append(all, map[string]any{"id": id, done: was && err == nil})
		t.rows = append(t.rows, []string{id, map[bool]string{true: "yes", false: "no"}[was && err == nil]})
	}
	return errors.Join(append([]error{f.print(s.Out, all, t)}, failed...)...)
}
