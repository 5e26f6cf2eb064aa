package runners

import (
	"context"

	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
)

// Recover returns the row of a server that adopts runners.
func Recover() []rows.Row {
	return []rows.Row{{
		Name:  "recover/250",
		What:  "From the SIGKILL of a server with 200 idle and 50 claimed runners until the next one reports all of them through the API.",
		Floor: "The same with a server without runners.",
		Unit:  measure.Milliseconds,
		Goals: []measure.Goal{{Of: "p50", AtMost: 1000}, {Of: "p99", AtMost: 1000}},
		Open:  openRecover,
	}}
}

// openRecover prepares a server with runners and, for the floor, one without.
func openRecover(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
	idle, claimed := b.Ops(200), b.Ops(50)
	full, err := b.Serve(ctx, idle, 0)
	if err != nil {
		return rows.Pair{}, err
	}
	runners := make([]string, claimed)
	for i := range runners {
		if runners[i], err = full.Claim(ctx); err != nil {
			return rows.Pair{}, err
		}
	}
	b.OnClose(func() error { // stopping may not have the time to remove them all
		return rows.Concurrently(context.WithoutCancel(ctx), 2, claimed, eachOnce(runners, full.Release))
	})
	if err := full.Settle(ctx, idle); err != nil {
		return rows.Pair{}, err
	}
	empty, err := b.Serve(ctx, 0, 0)
	if err != nil {
		return rows.Pair{}, err
	}
	row := func(ctx context.Context, r *measure.Round) error {
		return rows.Restart(ctx, full, r, idle, claimed)
	}
	floor := func(ctx context.Context, r *measure.Round) error { return rows.Restart(ctx, empty, r, 0, 0) }
	return rows.Pair{Row: row, Floor: floor}, rows.Warm(ctx, row, floor)
}

// eachOnce returns a function that calls do with the next element at each call.
func eachOnce(all []string, do func(context.Context, string) error) func(context.Context, int) error {
	next := make(chan string, len(all))
	for _, one := range all {
		next <- one
	}
	return func(ctx context.Context, _ int) error { return do(ctx, <-next) }
}
