package sustained

import (
	"context"

	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
)

// making returns the rows of runners that are made and removed unused.
func making() []rows.Row {
	return []rows.Row{{
		Name:  "make/sustained",
		What:  "Runners made and removed per second: 8 clients claim and release without a pause, while a pool of 8 replaces the runners.",
		Floor: "A small C program that makes the same kind of sandbox with system calls alone, starts `true` in it and removes it; two at a time.",
		Unit:  measure.PerSecond, Per: "runner",
		Goals: []measure.Goal{{Of: "p50", AtLeast: 250}},
		Open:  openMaking,
	}, {
		Name:  "remove",
		What:  "From `releaseRunner` to its answer, in sequence, without other work. CPU time is counted until the last runner is removed.",
		Floor: "A small C program that kills the process of such a sandbox, waits for its end and removes its cgroups.",
		Unit:  measure.Milliseconds, Per: "runner",
		Open: openRemoving,
	}}
}

// openMaking prepares the row of runners that are claimed and released without use.
func openMaking(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
	s, err := b.Serve(ctx, pool, 0)
	if err != nil {
		return rows.Pair{}, err
	}
	p := rows.Pair{Rounds: 5, Row: func(ctx context.Context, r *measure.Round) error {
		err := load(b).Measure(ctx, r, func(ctx context.Context) error {
			runner, err := s.Claim(ctx)
			if err != nil {
				return err
			}
			return s.Release(ctx, runner)
		})
		if err != nil {
			return err
		}
		return s.Settle(ctx, pool)
	}}
	f, note, err := openFresh(ctx, b)
	if err != nil {
		return rows.Pair{}, err
	}
	if p.Note = note; f != nil {
		p.Floor = f.running(b.Ops(300), []string{"/usr/bin/true"})
	}
	return p, rows.Warm(ctx, p.Probes()...)
}

// openRemoving prepares the row of releases.
func openRemoving(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
	s, err := b.Serve(ctx, 0, 0)
	if err != nil {
		return rows.Pair{}, err
	}
	n := b.Ops(20)
	if err := s.Fits(ctx, n); err != nil {
		return rows.Pair{}, err
	}
	p := rows.Pair{Row: func(ctx context.Context, r *measure.Round) error { return removals(ctx, s, r, n) }}
	f, note, err := openFresh(ctx, b)
	if err != nil {
		return rows.Pair{}, err
	}
	if p.Note = note; f != nil {
		p.Floor = func(ctx context.Context, r *measure.Round) error {
			times, err := f.do(ctx, f.group, "remove", n)
			for _, t := range times {
				r.Add(float64(t.Nanoseconds()) / 1e6)
			}
			return err
		}
	}
	return p, rows.Warm(ctx, p.Probes()...)
}

// removals claims all runners of a pool that doesn't replace them, then releases them.
func removals(ctx context.Context, s *bed.Server, r *measure.Round, n int) error {
	if err := s.Keep(ctx, n); err != nil {
		return err
	}
	runners := make([]string, n)
	for i := range runners {
		var err error
		if runners[i], err = s.Claim(ctx); err != nil {
			return err
		}
	}
	if err := s.Keep(ctx, 0); err != nil {
		return err
	}
	_, err := r.Meter(float64(n), func() error {
		for _, runner := range runners {
			took, err := measure.Timed(func() error { return s.Release(ctx, runner) })
			if err != nil {
				return err
			}
			r.Add(took)
		}
		return s.Settle(ctx, 0)
	})
	return err
}
