package rows

import (
	"context"
	"fmt"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/socket"
)

// Claims claims runners, releases them and waits until the pool is full again. It measures only the
// claims.
func Claims(ctx context.Context, s *bed.Server, r *measure.Round, idle, together, times int) error {
	return Repeat(times, func() error {
		runners := make([]string, together)
		for i := range runners {
			if err := r.Time(func() (err error) {
				runners[i], err = s.Claim(ctx)
				return err
			}); err != nil {
				return err
			}
		}
		for _, runner := range runners {
			if err := s.Release(ctx, runner); err != nil {
				return err
			}
		}
		return s.Settle(ctx, idle)
	})
}

// FirstOutput measures the time from a start to its first output, then waits for the end.
func FirstOutput(ctx context.Context, s *bed.Server, k *socket.Conn, runner string, r *measure.Round) error {
	err := r.Time(func() error {
		execution, err := s.Start(ctx, runner, "echo", "hello")
		if err != nil {
			return err
		}
		if err := k.Subscribe(ctx, execution); err != nil {
			return err
		}
		_, err = k.Output(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return k.Drain(ctx, nil)
}

// Restart kills the server, and measures the time until the next one has all of its runners.
func Restart(ctx context.Context, s *bed.Server, r *measure.Round, idle, claimed int) error {
	began := time.Now()
	if err := s.Replace(ctx); err != nil {
		return err
	}
	if err := bed.Until(ctx, func() (bool, error) {
		out, err := client.GetPool(ctx, s, bed.Environment)
		if err != nil {
			return false, err
		}
		p := out.Environment.Pool
		if lost := idle + claimed - p.Idle - p.Claimed; lost > 0 && p.Starting+p.Stopping > 0 {
			return false, fmt.Errorf("%d of its runners were lost: %+v", lost, p)
		}
		return p.Idle == idle && p.Claimed == claimed, nil
	}); err != nil {
		return err
	}
	r.Add(float64(time.Since(began).Nanoseconds()) / 1e6)
	return nil
}
