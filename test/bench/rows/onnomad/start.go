package onnomad

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rockpool/rockpool/test/bench/bare"
	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
)

// openStart prepares the row of a claim without idle runners. Its note lists the steps of the
// start.
func openStart(driver string) func(context.Context, *bed.Bed) (rows.Pair, error) {
	return func(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
		s, err := b.ServeNomad(ctx, driver, 0)
		if err != nil {
			return rows.Pair{}, err
		}
		var ours, alone steps
		row := func(ctx context.Context, r *measure.Round) error {
			began, runner := time.Now(), ""
			if err := r.Time(func() (err error) { runner, err = s.Claim(ctx); return err }); err != nil {
				return err
			}
			ready := time.Now()
			tasks, err := b.Nomad.Tasks(ctx, s.Prefix+"-runner-"+runner)
			if err == nil {
				err = bed.Until(ctx, func() (bool, error) { // Nomad reports it a second late
					if len(tasks) == 1 && !tasks[0].Started.IsZero() {
						return true, nil
					}
					tasks, err = b.Nomad.Tasks(ctx, s.Prefix+"-runner-"+runner)
					return false, err
				})
			}
			if err != nil {
				return err
			}
			ours.add(began, tasks[0], ready)
			return s.Release(ctx, runner)
		}
		floor := func(ctx context.Context, r *measure.Round) error {
			began := time.Now()
			tasks, end, err := b.Nomad.Start(ctx, driver, 1)
			if err != nil {
				return errors.Join(err, end(ctx))
			}
			r.Add(milliseconds(tasks[0].Started.Sub(began)))
			alone.add(began, tasks[0], tasks[0].Started)
			return end(ctx)
		}
		note := func() string { return "where it goes: " + ours.String() + "; the floor: " + alone.String() }
		return rows.Pair{Row: row, Floor: floor, Note: note}, rows.Warm(ctx, row, floor)
	}
}

// steps has the durations of each step of several starts, in milliseconds.
type steps struct{ placed, received, setup, fetched, driver, answered []float64 }

// add records one start. began and ready are by the bench's clock, the task's times by Nomad's.
func (s *steps) add(began time.Time, t bare.Task, ready time.Time) {
	built := t.Started
	if !t.Fetch.IsZero() {
		built = t.Fetch
	}
	s.placed = append(s.placed, milliseconds(t.Placed.Sub(began)))
	s.received = append(s.received, milliseconds(t.Received.Sub(t.Placed)))
	s.setup = append(s.setup, milliseconds(t.Setup.Sub(t.Received)))
	s.fetched = append(s.fetched, milliseconds(built.Sub(t.Setup)))
	s.driver = append(s.driver, milliseconds(t.Started.Sub(built)))
	s.answered = append(s.answered, milliseconds(ready.Sub(t.Started)))
}

// String lists the median of each step.
func (s *steps) String() string {
	p50 := func(samples []float64) string { return measure.Figure(measure.Summarise(slices.Clone(samples)).P50) }
	text := fmt.Sprintf("registered and placed %s, received %s, directory begun %s, ", p50(s.placed), p50(s.received), p50(s.setup))
	if slices.Max(s.driver) > 0 {
		text += fmt.Sprintf("made %s, agent fetched and task started %s", p50(s.fetched), p50(s.driver))
	} else {
		text += fmt.Sprintf("made and task started %s", p50(s.fetched))
	}
	if slices.Max(s.answered) > 0 {
		text += fmt.Sprintf(", agent's answer and claim %s", p50(s.answered))
	}
	return text + " ms"
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// openRefill prepares the row of filling a pool. Emptying it isn't measured.
func openRefill(driver string, there bool) func(context.Context, *bed.Bed) (rows.Pair, error) {
	return func(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
		var more []string
		if there {
			more = []string{"--nomad-agent-path", b.Nomad.AgentPath}
		}
		s, err := b.ServeNomad(ctx, driver, 0, more...)
		if err != nil {
			return rows.Pair{}, err
		}
		n := b.Ops(20)
		if err := s.Fits(ctx, n); err != nil {
			return rows.Pair{}, err
		}
		row := func(ctx context.Context, r *measure.Round) error {
			if err := r.Rate(float64(n), func() error { return s.Keep(ctx, n) }); err != nil {
				return err
			}
			return s.Keep(ctx, 0)
		}
		floor := func(ctx context.Context, r *measure.Round) error {
			began := time.Now()
			tasks, end, err := b.Nomad.Start(ctx, driver, n)
			if err != nil {
				return errors.Join(err, end(ctx))
			}
			last := began
			for _, t := range tasks {
				if t.Started.After(last) {
					last = t.Started
				}
			}
			r.Add(float64(n) / last.Sub(began).Seconds())
			return end(ctx)
		}
		return rows.Pair{Row: row, Floor: floor, Rounds: 3}, rows.Warm(ctx, row, floor)
	}
}
