package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
)

type envCommands struct {
	List   envList   `cmd:"" help:"List environments."`
	Show   envShow   `cmd:"" help:"Show one environment with its pool."`
	Put    envPut    `cmd:"" help:"Create or change environments."`
	Delete envDelete `cmd:"" help:"Delete environments."`
}

type envList struct {
	command.Flags
	output.Format
}

func (c *envList) Run(ctx context.Context, s command.Streams, server client.Sender) error {
	out, err := client.GetEnvironments(ctx, server)
	if err != nil {
		return err
	}
	t := output.Table{Head: []string{"ENVIRONMENT", "TENANT", "IMAGE", "IDLE", "CLAIMED", "MEMORY", "CPU", "PROCESSES", "TIME LIMIT", ""}}
	for _, e := range out.Environments {
		t.Rows = append(t.Rows, []string{
			e.Id, owner(e), e.Image, fmt.Sprintf("%d/%d", e.Pool.Idle, e.Pool.Size), strconv.Itoa(e.Pool.Claimed),
			fmt.Sprintf("%d MiB", e.Resources.MemoryMiB), fmt.Sprintf("%d MHz", e.Resources.CpuMHz), strconv.Itoa(e.Resources.Processes),
			seconds(e.DefaultTimeLimit), command.Text(e.Pool.Reason),
		})
	}
	return c.List(s.Out, s.Err, out.Environments, t, "no environments: create one with `rockpool env put NAME`")
}

// owner returns an environment's tenant, and whether the environment is shared.
func owner(e client.Environment) string {
	if e.Shared {
		return e.Tenant + " (shared)"
	}
	return e.Tenant
}

// seconds formats a time limit. 0 means that there is none.
func seconds(n int) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprintf("%d s", n)
}

type envShow struct {
	command.Flags
	output.Format
	ID string `arg:"" name:"environment" complete:"environment" help:"Id of the environment."`
}

func (c *envShow) Run(ctx context.Context, s command.Streams, server client.Sender) error {
	out, err := client.GetEnvironment(ctx, server, c.ID)
	if err != nil {
		return err
	}
	if out.Environment == nil {
		return command.NoEnvironment(ctx, server, c.ID)
	}
	return c.Print(s.Out, out.Environment, environmentTable(out.Environment))
}

// reach describes the network that programs can reach.
func reach(n client.EnvironmentNetwork) string {
	reach := "none"
	if n.Access {
		reach = "yes"
	}
	if only := append(slices.Clone(n.Allow), n.AllowNames...); len(only) > 0 {
		reach = "only " + strings.Join(only, ", ")
	}
	if n.BandwidthMbit > 0 {
		reach += fmt.Sprintf(", %d Mbit/s", n.BandwidthMbit)
	}
	return reach
}

// environmentTable returns an environment as rows of name and value.
func environmentTable(e *client.Environment) output.Table {
	ports := make([]string, len(e.Network.ExposedPorts))
	for i, port := range e.Network.ExposedPorts {
		ports[i] = strconv.Itoa(port)
	}
	t := output.Table{Head: []string{"environment", e.Id}, Rows: [][]string{
		{"tenant", owner(*e)},
		{"revision", strconv.Itoa(e.Revision)},
		{"image", e.Image},
		{"isolation", strings.TrimSuffix(string(e.Isolation)+", by "+e.Runtime, ", by ")},
		{"CPU", fmt.Sprintf("%d MHz", e.Resources.CpuMHz)},
		{"memory", fmt.Sprintf("%d MiB", e.Resources.MemoryMiB)},
		{"processes", strconv.Itoa(e.Resources.Processes)},
		{"workspace", fmt.Sprintf("%d MiB", e.Resources.WorkspaceMiB)},
		{"network", reach(e.Network)},
		{"exposed ports", strings.Join(ports, ", ")},
		{"time limit", seconds(e.DefaultTimeLimit)},
		{"output limit", fmt.Sprintf("%d bytes", e.OutputLimit)},
		{"pool", fmt.Sprintf("%d of %d idle, %d starting, %d claimed, %d stopping, %d waiting",
			e.Pool.Idle, e.Pool.Size, e.Pool.Starting, e.Pool.Claimed, e.Pool.Stopping, e.Pool.Waiting)},
	}}
	if e.Pool.Reason != nil {
		t.Rows = append(t.Rows, []string{"", *e.Pool.Reason})
	}
	for _, v := range e.Variables {
		t.Rows = append(t.Rows, []string{"variable", v.Name + "=" + v.Value})
	}
	return t
}

type envDelete struct {
	command.Flags
	output.Format
	IDs        []string `arg:"" name:"environment" complete:"environment" help:"Ids of the environments."`
	EndClaimed bool     `help:"End claimed runners too. Without it, they continue until they are released or expire."`
}

func (c *envDelete) Run(ctx context.Context, s command.Streams, server client.Sender) error {
	return command.Each(ctx, s, c.Format, c.IDs, "deleted", "doesn't exist", func(ctx context.Context, id string) (bool, error) {
		out, err := client.DeleteEnvironment(ctx, server, client.DeleteEnvironmentInput{Id: id, EndClaimed: &c.EndClaimed})
		return err == nil && out.DeleteEnvironment.Deleted, err
	})
}

type languagesCommand struct {
	command.Flags
	output.Format
	Versions bool `help:"Show the version of each language, too. The server determines it once, in a runner of the environment."`
}

// A listedLanguage is a language with its version.
type listedLanguage struct {
	client.Language
	Version *string `json:"version,omitempty"` // nil if it is unknown or wasn't requested
}

func (c *languagesCommand) Run(ctx context.Context, s command.Streams, server client.Sender) error {
	all, err := c.list(ctx, server)
	if err != nil {
		return err
	}
	t := output.Table{Head: []string{"LANGUAGE", "NAME", "FILES", "ENVIRONMENT"}}
	if c.Versions {
		t.Head = append(t.Head, "VERSION")
	}
	for _, l := range all {
		row := []string{l.Id, l.Name, strings.Join(l.Extensions, " "), dash(l.EnvironmentId)}
		if c.Versions {
			row = append(row, dash(l.Version))
		}
		t.Rows = append(t.Rows, row)
	}
	return c.List(s.Out, s.Err, all, t, "no languages")
}

// list requests the languages, with their versions if the caller wants them.
func (c *languagesCommand) list(ctx context.Context, server client.Sender) ([]listedLanguage, error) {
	all := []listedLanguage{}
	if c.Versions {
		out, err := client.GetLanguagesWithVersions(ctx, server)
		if err != nil {
			return nil, err
		}
		for _, l := range out.Languages {
			all = append(all, listedLanguage{l.Language, l.Version})
		}
		return all, nil
	}
	out, err := client.GetLanguages(ctx, server)
	if err != nil {
		return nil, err
	}
	for _, l := range out.Languages {
		all = append(all, listedLanguage{Language: l})
	}
	return all, nil
}

// dash returns the value for a table's cell, and "-" for nil.
func dash(value *string) string {
	if value == nil {
		return "-"
	}
	return *value
}
