// Package servers compares a server with another one that has fewer runners, a shorter history, or
// another isolation tier.
package servers

import (
	"context"

	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
)

// A size is the number of a server's runners and stored executions.
type size struct{ runners, executions int }

// Flat returns the rows that compare a large server with a small one.
func Flat() []rows.Row {
	const claim, output = "The claim of a warm runner", "The first output of `echo` on a WebSocket"
	goals := []measure.Goal{{Of: "ratio", AtMost: 1.5}}
	many, few := size{runners: 500}, size{runners: 10}
	long, short := size{2, 100_000}, size{2, 1_000}
	return []rows.Row{{
		Name: "flat/claim/runners", What: claim + " with 500 idle runners.", Floor: "The same with 10, on a second server.",
		Unit: measure.Milliseconds, Per: "claim", Goals: goals, Open: openFlatClaim(many, few),
	}, {
		Name: "flat/first-output/runners", What: output + " with 500 idle runners.", Floor: "The same with 10, on a second server.",
		Unit: measure.Milliseconds, Per: "start", Goals: goals, Open: openFlatOutput(many, few),
	}, {
		Name: "flat/claim/history", What: claim + " with 100,000 finished executions stored.", Floor: "The same with 1,000, on a second server.",
		Unit: measure.Milliseconds, Per: "claim", Goals: goals, Open: openFlatClaim(long, short),
	}, {
		Name: "flat/first-output/history", What: output + " with 100,000 finished executions stored.", Floor: "The same with 1,000, on a second server.",
		Unit: measure.Milliseconds, Per: "start", Goals: goals, Open: openFlatOutput(long, short),
	}}
}

// openFlatClaim prepares the row of a claim on servers of two sizes.
func openFlatClaim(large, small size) func(context.Context, *bed.Bed) (rows.Pair, error) {
	return func(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
		return flat(ctx, b, large, small, func(_ context.Context, s *bed.Server, of size) (rows.Probe, error) {
			return func(ctx context.Context, r *measure.Round) error {
				return rows.Claims(ctx, s, r, of.runners, 1, b.Ops(10))
			}, nil
		})
	}
}

// openFlatOutput prepares the row of the first output on servers of two sizes.
func openFlatOutput(large, small size) func(context.Context, *bed.Bed) (rows.Pair, error) {
	return func(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
		return flat(ctx, b, large, small, func(ctx context.Context, s *bed.Server, of size) (rows.Probe, error) {
			runner, err := s.Claim(ctx)
			if err != nil {
				return nil, err
			}
			k, err := s.Dial(ctx)
			if err != nil {
				return nil, err
			}
			b.OnClose(func() error { k.Close(); return nil })
			return func(ctx context.Context, r *measure.Round) error {
				return rows.Repeat(b.Ops(30), func() error { return rows.FirstOutput(ctx, s, k, runner, r) })
			}, s.Settle(ctx, of.runners)
		})
	}
}

// flat starts a server of each size, and prepares its measurement.
func flat(ctx context.Context, b *bed.Bed, large, small size, prepare func(context.Context, *bed.Server, size) (rows.Probe, error)) (rows.Pair, error) {
	var probes [2]rows.Probe
	for i, of := range []size{large, small} {
		s, err := b.Serve(ctx, of.runners, of.executions)
		if err != nil {
			return rows.Pair{}, err
		}
		if probes[i], err = prepare(ctx, s, of); err != nil {
			return rows.Pair{}, err
		}
	}
	return rows.Pair{Row: probes[0], Floor: probes[1]}, rows.Warm(ctx, probes[:]...)
}
