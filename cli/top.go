package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
)

type topCommand struct {
	command.Flags
	output.Format
	Env  string `short:"e" complete:"environment" placeholder:"ENVIRONMENT" help:"Only executions in runners of this environment."`
	Sort string `enum:"cpu,memory,elapsed,processes,output" default:"cpu" placeholder:"COLUMN" help:"Sort by this column, the largest first: ${enum}. (${default})"`
	Once bool   `help:"Print one table and exit. This is the default with --json and without a terminal."`
}

func (c *topCommand) Run(ctx context.Context, s command.Streams, server client.Sender) error {
	view := &View{Sort: c.Sort}
	all, table, err := c.fetch(ctx, server, view)
	if err != nil {
		return err
	}
	if c.Once || c.JSON || c.Output != "table" {
		return c.Print(s.Out, all, table)
	}
	screen, err := output.OpenScreen(s.In, s.Out)
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
func (c *topCommand) fetch(ctx context.Context, server client.Sender, view *View) ([]client.RunningExecution, output.Table, error) {
	all, err := command.Pages(func(after *string) ([]client.RunningExecution, client.PageInfo, error) {
		out, err := client.GetRunning(ctx, server, command.Optional(c.Env), command.LabelledPage, after)
		return out.Executions.Nodes, out.Executions.PageInfo, err
	})
	if err != nil {
		return nil, output.Table{}, err
	}
	sorted, table := view.Table(all, time.Now())
	return sorted, table, nil
}

func page(all []client.RunningExecution, table output.Table, trouble string) []string {
	var text bytes.Buffer
	_ = output.Format{Output: "table"}.Print(&text, nil, table) // a buffer never fails
	head := []string{"rockpool top: " + Summary(all, table) + ". q exits.", trouble}
	return append(head, strings.Split(strings.TrimRight(text.String(), "\n"), "\n")...)
}

// sorts has the columns to sort by, the largest value first.
var sorts = map[string]func(r row) float64{
	"cpu":       func(r row) float64 { return r.cpu },
	"memory":    func(r row) float64 { return float64(r.memory) },
	"elapsed":   func(r row) float64 { return float64(r.elapsed) },
	"processes": func(r row) float64 { return float64(r.processes) },
	"output":    func(r row) float64 { return float64(r.output) },
}

// A View computes tables of running executions. It keeps the previous samples, to compute CPU use in between.
type View struct {
	Sort string // cpu, memory, elapsed, processes or output

	before map[string]sample // by execution id
}

// A sample is the CPU time that an execution had used after a run time.
type sample struct {
	cpu, wall int64 // milliseconds
	percent   float64
}

// A row is one execution.
type row struct {
	of        client.RunningExecution
	known     bool    // the server sent the values below
	cpu       float64 // percent of one CPU, since the previous table; in the first table, since the start
	memory    int64
	processes int
	output    int64
	elapsed   time.Duration
}

// Table returns the executions sorted by v.Sort, and their table.
func (v *View) Table(all []client.RunningExecution, now time.Time) ([]client.RunningExecution, output.Table) {
	rows := v.rows(all, now)
	slices.SortStableFunc(rows, func(a, b row) int {
		by := sorts[v.Sort]
		return cmp.Or(cmp.Compare(by(b), by(a)), cmp.Compare(a.of.Id, b.of.Id))
	})
	t := output.Table{Head: []string{"EXECUTION", "ELAPSED", "CPU", "MEMORY", "PROCESSES", "OUTPUT", "ENVIRONMENT", "TENANT", "LABELS", "COMMAND"}}
	sorted := make([]client.RunningExecution, 0, len(rows))
	for _, r := range rows {
		sorted = append(sorted, r.of)
		t.Rows = append(t.Rows, r.cells())
	}
	return sorted, t
}

// Summary returns the number of executions and their total memory.
func Summary(all []client.RunningExecution, t output.Table) string {
	var memory int64
	for _, x := range all {
		if x.UsageNow != nil && x.UsageNow.Memory != nil {
			memory += *x.UsageNow.Memory
		}
	}
	return fmt.Sprintf("%d running, %s of memory", len(t.Rows), size(memory))
}

// rows computes the rows and remembers the samples for the next table. Samples of ended executions
// are dropped.
func (v *View) rows(all []client.RunningExecution, now time.Time) []row {
	seen := make(map[string]sample, len(all))
	rows := make([]row, 0, len(all))
	for _, x := range all {
		r := row{of: x}
		if x.Timestamps.StartedAt != nil {
			r.elapsed = max(0, now.Sub(*x.Timestamps.StartedAt))
		}
		if u := x.UsageNow; u != nil {
			s := v.sample(x.Id, u)
			seen[x.Id] = s
			r.known, r.cpu, r.output, r.elapsed = true, s.percent, u.OutputBytes, time.Duration(u.WallMs)*time.Millisecond
			r.memory, r.processes = orZero(u.Memory), orZero(u.Processes)
		} else if s, ok := v.before[x.Id]; ok {
			seen[x.Id] = s
		}
		rows = append(rows, r)
	}
	v.before = seen
	return rows
}

// sample returns an execution's CPU use since the previous table.
func (v *View) sample(id string, u *client.UsageNow) sample {
	before := v.before[id]
	s := sample{cpu: u.UserMs + u.SystemMs, wall: u.WallMs, percent: before.percent}
	if wall := s.wall - before.wall; wall > 0 {
		s.percent = 100 * float64(max(0, s.cpu-before.cpu)) / float64(wall)
	}
	return s
}

// cells formats a row. "-" means that the server sent no value.
func (r row) cells() []string {
	cpu, memory, processes, printed := "-", "-", "-", "-"
	if r.known {
		cpu, printed = fmt.Sprintf("%.0f%%", r.cpu), size(r.output)
		if r.memory > 0 {
			memory = size(r.memory)
		}
		if r.processes > 0 {
			processes = strconv.Itoa(r.processes)
		}
	}
	if runner := r.of.Runner; runner != nil && runner.Usage != nil && r.known {
		memory += " / " + size(runner.Usage.MemoryLimit)
		processes += " / " + strconv.Itoa(runner.Usage.ProcessLimit)
	}
	var labels []string
	for _, l := range r.of.Labels {
		labels = append(labels, l.Name+"="+l.Value)
	}
	return []string{
		r.of.Id, r.elapsed.Truncate(time.Second).String(), cpu, memory, processes, printed,
		r.of.EnvironmentId, r.of.Tenant, cmp.Or(strings.Join(labels, ","), "-"), r.of.CommandLine,
	}
}

// size formats a number of bytes with three or four digits.
func size(bytes int64) string {
	value, units := float64(bytes), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for len(units) > 1 && value >= 1024 {
		value, units = value/1024, units[1:]
	}
	if value < 10 && units[0] != "B" {
		return fmt.Sprintf("%.1f %s", value, units[0])
	}
	return fmt.Sprintf("%.0f %s", value, units[0])
}

// orZero returns the value at p, and zero for nil.
func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
