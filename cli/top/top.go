// Package top shows what runs on a server and what it uses, as top(1) does of a machine. It asks the
// server nothing itself.
package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
)

// Sorts are what rows can be sorted by, the largest first.
var sorts = map[string]func(r row) float64{
	"cpu":       func(r row) float64 { return r.cpu },
	"memory":    func(r row) float64 { return float64(r.memory) },
	"elapsed":   func(r row) float64 { return float64(r.elapsed) },
	"processes": func(r row) float64 { return float64(r.processes) },
	"output":    func(r row) float64 { return float64(r.output) },
}

// A View is what is shown of executions that run, at one time after the other.
type View struct {
	Sort string // cpu, memory, elapsed, processes or output

	before map[string]sample // by execution
}

// A sample is how much processor time an execution had used, when it had run for a while.
type sample struct {
	cpu, wall int64 // milliseconds
	percent   float64
}

// A row is one execution.
type row struct {
	of        client.RunningExecution
	known     bool    // what follows is
	cpu       float64 // percent of a processor, since the view before; at first, since its start
	memory    int64
	processes int
	output    int64
	elapsed   time.Duration
}

// Table returns the executions sorted, and the same as rows for people.
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

// Summary says what all have together.
func Summary(all []client.RunningExecution, t output.Table) string {
	var memory int64
	for _, x := range all {
		if x.Usage != nil && x.Usage.Memory != nil {
			memory += *x.Usage.Memory
		}
	}
	return fmt.Sprintf("%d running, %s of memory", len(t.Rows), size(memory))
}

func (v *View) rows(all []client.RunningExecution, now time.Time) []row {
	seen := make(map[string]sample, len(all))
	rows := make([]row, 0, len(all))
	for _, x := range all {
		r := row{of: x}
		if x.Marks.StartedAt != nil {
			r.elapsed = max(0, now.Sub(*x.Marks.StartedAt))
		}
		if u := x.Usage; u != nil {
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

// sample returns what an execution uses of a processor since it was seen before.
func (v *View) sample(id string, u *client.LiveUsage) sample {
	before := v.before[id]
	s := sample{cpu: u.UserMs + u.SystemMs, wall: u.WallMs, percent: before.percent}
	if wall := s.wall - before.wall; wall > 0 {
		s.percent = 100 * float64(max(0, s.cpu-before.cpu)) / float64(wall)
	}
	return s
}

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
	var labels []string
	if runner := r.of.Runner; runner != nil {
		if u := runner.Usage; u != nil && r.known {
			memory += " / " + size(u.MemoryLimit)
			processes += " / " + strconv.Itoa(u.ProcessLimit)
		}
		if runner.Claim != nil {
			for _, l := range runner.Claim.Labels {
				labels = append(labels, l.Name+"="+l.Value)
			}
		}
	}
	return []string{
		r.of.Id, r.elapsed.Truncate(time.Second).String(), cpu, memory, processes, printed,
		r.of.EnvironmentId, r.of.Tenant, cmp.Or(strings.Join(labels, ","), "-"), r.of.CommandLine,
	}
}

// size says bytes in three digits or four.
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

func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
