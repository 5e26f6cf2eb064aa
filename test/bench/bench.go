// Command bench measures a server beside what it can't be faster than: each row
// takes turns with its floor, round by round in the same run, so that both meet
// the same machine. A number alone says little on a machine that is shared; the
// ratio to the floor says more.
//
// Servers are processes of their own, in directories and groups of their own;
// whatever is started ends with Run.
package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Config says what is measured and how long.
type Config struct {
	bedConfig
	Rows   []string // see Select; none: all
	Rounds int      // of each row; 0: 10, or 2 if Quick
}

// Rows returns all rows of this machine, in the order in which they are measured.
func Rows() []Row {
	return slices.Concat(claimRows(), outputRows(), trueRows(), runRows(), watchRows(), terminalRows(), transferRows(), memoryRows(), makingRows(), gvisorRows(), recoverRows(), scheduleRows(), flatRows())
}

// Run measures the rows and returns their results; a row that could not be
// measured has an Error, one that doesn't fit the machine is LeftOut, and the others
// go on. It ends when ctx does, with what there is until then.
func Run(ctx context.Context, c Config) (Report, error) {
	rows, err := c.rows(ctx)
	if err != nil {
		return Report{}, err
	}
	if c.Rounds == 0 {
		if c.Rounds = 10; c.Quick {
			c.Rounds = 2
		}
	}
	report := Report{Machine: inspect(), Rounds: c.Rounds, Quick: c.Quick, At: time.Now().UTC().Truncate(time.Second)}
	floors, err := startFloors(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("start the floors' server: %w", err)
	}
	defer floors.stop()
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

// rows returns those that are asked for, and that this machine, or this Nomad,
// can have.
func (c Config) rows(ctx context.Context) ([]Row, error) {
	if c.Nomad == nil {
		selected, err := Select(Rows(), c.Rows)
		if c.GVisor == "" {
			selected = slices.DeleteFunc(selected, func(r Row) bool { return r.GVisor })
		}
		if err == nil && len(selected) == 0 {
			err = errors.New("--row names rows that need --gvisor-runtime")
		}
		return selected, err
	}
	selected, err := Select(NomadRows(), c.Rows)
	if err != nil {
		return nil, err
	}
	return able(ctx, c.Nomad, selected, c.Progress)
}

// measureRow measures one row with servers of its own.
func measureRow(ctx context.Context, c Config, floors *floorProcess, row Row) (result Result) {
	began := time.Now()
	b := &bed{bedConfig: c.bedConfig, row: row.Name, floors: floors}
	result = Result{Name: row.Name, What: row.What, FloorIs: row.Floor, Unit: row.Unit, Per: row.Per}
	err := func() error {
		p, err := row.Open(ctx, b)
		if err != nil {
			return err
		}
		return alternate(ctx, b, p, c.Rounds, &result)
	}()
	if closed := b.close(); err == nil {
		err = closed
	}
	result.failed(err)
	result.Took = time.Since(began).Seconds()
	result.judge(row.Goals)
	return result
}

// alternate takes the rounds, row and floor in turn.
func alternate(ctx context.Context, b *bed, p pair, rounds int, result *Result) error {
	if p.rounds > 0 {
		rounds = min(rounds, p.rounds)
	}
	ours, floor := &round{usage: b.cpu}, &round{}
	defer b.profile(ctx)()
	for range rounds {
		if err := p.row(ctx, ours); err != nil {
			return err
		}
		if p.floor == nil {
			continue
		}
		if err := p.floor(ctx, floor); err != nil {
			return fmt.Errorf("the floor: %w", err)
		}
	}
	result.Row = Summarise(ours.samples)
	result.Floor = Summarise(floor.samples)
	if result.Floor.P50 > 0 {
		result.Ratio = result.Row.P50 / result.Floor.P50
	}
	result.CPU = ours.cpu()
	result.ServerMiB = b.peakMiB()
	if p.note != nil {
		result.Note = p.note()
	}
	return nil
}
