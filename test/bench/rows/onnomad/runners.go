package onnomad

import (
	"context"
	"fmt"

	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
)

// openClaim prepares the row of a claim. Its floor is one write of a Nomad variable.
func openClaim(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
	const idle = 2
	s, err := b.ServeNomad(ctx, "", idle)
	if err != nil {
		return rows.Pair{}, err
	}
	write, err := b.Nomad.Write(ctx)
	if err != nil {
		return rows.Pair{}, err
	}
	b.OnClose(func() error { return b.Nomad.End(context.WithoutCancel(ctx), b.Nomad.Prefix()+"/") })
	n := b.Ops(5)
	row := func(ctx context.Context, r *measure.Round) error { return rows.Claims(ctx, s, r, idle, 1, n) }
	floor := func(ctx context.Context, r *measure.Round) error {
		return rows.Repeat(n, func() error { return r.Time(func() error { return write(ctx) }) })
	}
	return rows.Pair{Row: row, Floor: floor}, rows.Warm(ctx, row, floor)
}

// openRecover prepares the row of a restart. It counts the server's list calls through a proxy.
func openRecover(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
	idle, claimed := b.Ops(150), b.Ops(50)
	counter, err := b.Nomad.Count()
	if err != nil {
		return rows.Pair{}, err
	}
	b.OnClose(counter.Close)
	full, err := b.ServeNomad(ctx, "", idle, "--nomad-address", counter.URL)
	if err != nil {
		return rows.Pair{}, err
	}
	for range claimed {
		if _, err := full.Claim(ctx); err != nil {
			return rows.Pair{}, err
		}
	}
	if err := full.Settle(ctx, idle); err != nil {
		return rows.Pair{}, err
	}
	empty, err := b.ServeNomad(ctx, "", 0)
	if err != nil {
		return rows.Pair{}, err
	}
	var lists []float64
	row := func(ctx context.Context, r *measure.Round) error {
		before := counter.Lists()
		if err := rows.Restart(ctx, full, r, idle, claimed); err != nil {
			return err
		}
		lists = append(lists, float64(counter.Lists()-before))
		return nil
	}
	floor := func(ctx context.Context, r *measure.Round) error { return rows.Restart(ctx, empty, r, 0, 0) }
	note := func() string {
		return fmt.Sprintf("lists that Nomad was asked for until all %d were there: %s at the median", idle+claimed, measure.Figure(measure.Summarise(lists).P50))
	}
	return rows.Pair{Row: row, Floor: floor, Rounds: 5, Note: note}, rows.Warm(ctx, row, floor)
}
