// Command bench compares servers with a floor: the fastest possible way to do the same. Each row
// takes turns with its floor, round by round, so that both run under the same conditions. On a
// shared machine the ratio of the two says more than a number alone.
//
// The bench starts the servers itself, in their own directories and cgroups. It ends everything
// that it started.
package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/floors"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
	"github.com/rockpool/rockpool/test/bench/rows/executions"
	"github.com/rockpool/rockpool/test/bench/rows/onnomad"
	"github.com/rockpool/rockpool/test/bench/rows/runners"
	"github.com/rockpool/rockpool/test/bench/rows/servers"
	"github.com/rockpool/rockpool/test/bench/rows/sustained"
)

// Config selects what is measured, and for how long.
type Config struct {
	bed.Config
	Rows   []string // see rows.Select; none means all
	Rounds int      // of each row; 0 means 10, or 2 if Quick
}

// Rows returns all rows of this machine, in the order in which they are measured.
func Rows() []rows.Row {
	return slices.Concat(runners.Claim(), executions.FirstOutput(), executions.True(), executions.Calls(), sustained.Rows(), executions.Batch(), executions.Watch(), executions.Terminal(), executions.Transfer(), runners.Memory(), runners.Making(), servers.GVisor(), runners.Recover(), runners.Schedule(), servers.Flat(), servers.Tenants(), servers.Fair())
}

// Run measures the rows and returns their results. A row that fails has an Error, one that doesn't
// fit the machine is LeftOut; the next rows are still measured. If ctx ends, Run returns the rows
// measured before and an error.
func Run(ctx context.Context, c Config) (measure.Report, error) {
	rows, err := c.rows(ctx)
	if err != nil {
		return measure.Report{}, err
	}
	if c.Rounds == 0 {
		if c.Rounds = 10; c.Quick {
			c.Rounds = 2
		}
	}
	report := measure.Report{Machine: measure.ThisMachine(), Rounds: c.Rounds, Quick: c.Quick, At: time.Now().UTC().Truncate(time.Second)}
	floors, err := floors.Start(ctx)
	if err != nil {
		return measure.Report{}, fmt.Errorf("start the floors' server: %w", err)
	}
	defer floors.Stop()
	for i, row := range rows {
		_, _ = fmt.Fprintf(c.Progress, "[%d/%d] %s\n", i+1, len(rows), row.Name)
		result := measureRow(ctx, c, floors, row)
		if ctx.Err() != nil {
			report.Interrupted = true
			return report, context.Cause(ctx)
		}
		report.Rows = append(report.Rows, result)
	}
	return report, nil
}

// rows returns the selected rows that this machine or this Nomad can run.
func (c Config) rows(ctx context.Context) ([]rows.Row, error) {
	if c.Nomad == nil {
		all := Rows()
		if c.Peer != nil {
			all = rows.Against(all, "go-judge at "+c.Peer.URL()+", which uses its containers again: the same job over its REST API.")
		}
		selected, err := rows.Select(all, c.Rows)
		if c.GVisor == "" {
			selected = slices.DeleteFunc(selected, func(r rows.Row) bool { return r.GVisor })
		}
		if err == nil && len(selected) == 0 {
			err = errors.New("--row names rows that need --gvisor-runtime")
		}
		return selected, err
	}
	selected, err := rows.Select(onnomad.Rows(), c.Rows)
	if err != nil {
		return nil, err
	}
	return onnomad.Measurable(ctx, c.Nomad, selected, c.Progress)
}

// measureRow measures one row, with servers started for it.
func measureRow(ctx context.Context, c Config, floors *floors.Process, row rows.Row) (result measure.Result) {
	began := time.Now()
	b := &bed.Bed{Config: c.Config, Name: row.Name, Floors: floors}
	result = measure.Result{Name: row.Name, What: row.What, FloorIs: row.Floor, Unit: row.Unit, Per: row.Per}
	err := func() error {
		p, err := row.Open(ctx, b)
		if err != nil {
			return err
		}
		return alternate(ctx, b, p, c.Rounds, &result)
	}()
	if closed := b.Close(); err == nil {
		err = closed
	}
	result.Fail(err)
	result.Took = time.Since(began).Seconds()
	result.Judge(row.Goals)
	return result
}

// alternate runs the rounds of the row and of its floor in turn.
func alternate(ctx context.Context, b *bed.Bed, p rows.Pair, rounds int, result *measure.Result) error {
	if p.Rounds > 0 {
		rounds = min(rounds, p.Rounds)
	}
	ours, floor := &measure.Round{Usage: b.CPU}, &measure.Round{}
	defer b.Profile(ctx)()
	for range rounds {
		if err := p.Row(ctx, ours); err != nil {
			return err
		}
		if p.Floor == nil {
			continue
		}
		if err := p.Floor(ctx, floor); err != nil {
			return fmt.Errorf("the floor: %w", err)
		}
	}
	result.Take(ours, floor)
	result.ServerMiB = b.PeakMiB()
	if p.Note != nil {
		result.Note = p.Note()
	}
	return nil
}
