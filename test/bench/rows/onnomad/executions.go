package onnomad

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
)

// openOutput prepares the row of the first output. Its floor runs the same command with Nomad's own
// exec.
func openOutput(driver string) func(context.Context, *bed.Bed) (rows.Pair, error) {
	return func(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
		s, err := b.ServeNomad(ctx, driver, 0)
		if err != nil {
			return rows.Pair{}, err
		}
		runner, err := s.Claim(ctx)
		if err != nil {
			return rows.Pair{}, err
		}
		k, err := s.Dial(ctx)
		if err != nil {
			return rows.Pair{}, err
		}
		b.OnClose(func() error { k.Close(); return nil })
		tasks, err := b.Bare(ctx, driver, 1)
		if err != nil {
			return rows.Pair{}, err
		}
		n := b.Ops(50)
		row := func(ctx context.Context, r *measure.Round) error {
			return rows.Repeat(n, func() error { return rows.FirstOutput(ctx, s, k, runner, r) })
		}
		floor := func(ctx context.Context, r *measure.Round) error {
			return rows.Repeat(b.Ops(10), func() error {
				out := &firstWrite{began: time.Now()}
				if err := b.Nomad.Exec(ctx, tasks[0].Allocation, out, "echo", "hello"); err != nil {
					return err
				}
				r.Add(milliseconds(out.after))
				return nil
			})
		}
		return rows.Pair{Row: row, Floor: floor}, rows.Warm(ctx, row, floor)
	}
}

// firstWrite records when the first output arrived.
type firstWrite struct {
	began time.Time
	after time.Duration
}

func (w *firstWrite) Write(p []byte) (int, error) {
	if w.after == 0 {
		w.after = time.Since(w.began)
	}
	return len(p), nil
}

// openTrue prepares the row of concurrent executions, with one runner for each worker. Its floor
// makes a tenth as many executions.
func openTrue(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
	const width = 8
	s, err := b.ServeNomad(ctx, "", 0)
	if err != nil {
		return rows.Pair{}, err
	}
	tasks, err := b.Bare(ctx, "", width)
	if err != nil {
		return rows.Pair{}, err
	}
	runners := make([]string, width)
	for i := range runners {
		if runners[i], err = s.Claim(ctx); err != nil {
			return rows.Pair{}, err
		}
	}
	n, fewer := b.Ops(500), b.Ops(50)
	row := func(ctx context.Context, r *measure.Round) error {
		return r.Rate(float64(n), func() error {
			return rows.Concurrently(ctx, width, n, func(ctx context.Context, worker int) error {
				return s.Run(ctx, runners[worker], "true")
			})
		})
	}
	floor := func(ctx context.Context, r *measure.Round) error {
		return r.Rate(float64(fewer), func() error {
			return rows.Concurrently(ctx, width, fewer, func(ctx context.Context, worker int) error {
				return b.Nomad.Exec(ctx, tasks[worker].Allocation, io.Discard, "true")
			})
		})
	}
	return rows.Pair{Row: row, Floor: floor}, rows.Warm(ctx, row, floor)
}

// openWatch prepares the row of one subscription to a program that prints as fast as it can.
func openWatch(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
	s, err := b.ServeNomad(ctx, "", 0)
	if err != nil {
		return rows.Pair{}, err
	}
	runner, err := s.Claim(ctx)
	if err != nil {
		return rows.Pair{}, err
	}
	tasks, err := b.Bare(ctx, "", 1)
	if err != nil {
		return rows.Pair{}, err
	}
	size := b.Ops(50_000_000)
	printing := fmt.Sprintf("yes %s | head -c %d", strings.Repeat("0123456789", 12), size)
	row := func(ctx context.Context, r *measure.Round) error {
		k, err := s.Dial(ctx)
		if err != nil {
			return err
		}
		defer k.Close()
		return r.Rate(float64(size)/1e6, func() error {
			execution, err := s.Start(ctx, runner, "sh", "-c", printing)
			if err == nil {
				err = k.Subscribe(ctx, execution)
			}
			if err != nil {
				return err
			}
			return k.DrainSize(ctx, size)
		})
	}
	floor := func(ctx context.Context, r *measure.Round) error {
		return r.Rate(float64(size)/1e6, func() error {
			return b.Nomad.Exec(ctx, tasks[0].Allocation, io.Discard, "sh", "-c", printing)
		})
	}
	return rows.Pair{Row: row, Floor: floor, Rounds: 5}, rows.Warm(ctx, row, floor)
}
