package main

import (
	"context"
	"fmt"
	"time"

	"github.com/rockpool/rockpool/client"
)

func recoverRows() []Row {
	return []Row{{
		Name:  "recover/250",
		What:  "From the SIGKILL of a server with 200 idle and 50 claimed runners until the next one has taken all of them over and says so through the API.",
		Floor: "The same of a server that has none.",
		Unit:  Milliseconds,
		Goals: []Goal{{Of: "p50", AtMost: 1000}, {Of: "p99", AtMost: 1000}},
		open:  openRecover,
	}}
}

func openRecover(ctx context.Context, b *bed) (pair, error) {
	idle, claimed := b.ops(200), b.ops(50)
	full, err := b.serve(ctx, idle, 0)
	if err != nil {
		return pair{}, err
	}
	runners := make([]string, claimed)
	for i := range runners {
		if runners[i], err = full.claim(ctx); err != nil {
			return pair{}, err
		}
	}
	b.onClose(func() error { // more than its end may have time for
		return atOnce(context.WithoutCancel(ctx), 2, claimed, eachOnce(runners, full.release))
	})
	if err := full.settle(ctx, idle); err != nil {
		return pair{}, err
	}
	empty, err := b.serve(ctx, 0, 0)
	if err != nil {
		return pair{}, err
	}
	row := func(ctx context.Context, r *round) error {
		return full.recover(ctx, r, idle, claimed)
	}
	floor := func(ctx context.Context, r *round) error { return empty.recover(ctx, r, 0, 0) }
	return pair{row: row, floor: floor}, warm(ctx, row, floor)
}

// eachOnce returns what does something to each of all, in turn, whoever calls it.
func eachOnce(all []string, do func(context.Context, string) error) func(context.Context, int) error {
	next := make(chan string, len(all))
	for _, one := range all {
		next <- one
	}
	return func(ctx context.Context, _ int) error { return do(ctx, <-next) }
}

// recover kills the server, and times until the next one has all of its runners.
func (s *target) recover(ctx context.Context, r *round, idle, claimed int) error {
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
