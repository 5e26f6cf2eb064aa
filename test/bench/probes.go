package main

import (
	"context"
	"fmt"
	"time"

	"github.com/rockpool/rockpool/client"
)

// claims claims, releases and lets the pool fill again; only the claims are
// timed.
func claims(ctx context.Context, s *target, r *round, idle, together, times int) error {
	return repeat(times, func() error {
		runners := make([]string, together)
		for i := range runners {
			if err := r.time(func() (err error) {
				runners[i], err = s.claim(ctx)
				return err
			}); err != nil {
				return err
			}
		}
		for _, runner := range runners {
			if err := s.release(ctx, runner); err != nil {
				return err
			}
		}
		return s.settle(ctx, idle)
	})
}

// firstOutput times a start to its output, then waits for its end.
func firstOutput(ctx context.Context, s *target, k *socket, runner string, r *round) error {
	err := r.time(func() error {
		execution, err := s.start(ctx, runner, "echo", "hello")
		if err != nil {
			return err
		}
		if err := k.subscribe(ctx, execution); err != nil {
			return err
		}
		_, err = k.output(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return k.drain(ctx, nil)
}

// restarts kills the server, and times until the next one has all of its runners.
func restarts(ctx context.Context, s *target, r *round, idle, claimed int) error {
	began := time.Now()
	if err := s.replace(ctx); err != nil {
		return err
	}
	if err := until(ctx, func() (bool, error) {
		out, err := client.GetPool(ctx, s, environment)
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
	r.add(float64(time.Since(began).Nanoseconds()) / 1e6)
	return nil
}
