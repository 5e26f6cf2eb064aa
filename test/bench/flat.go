package main

import "context"

// A size is how much a server has.
type size struct{ runners, executions int }

func flatRows() []Row {
	const claim, output = "The claim of a warm runner", "The first output of `echo` on a WebSocket"
	goals := []Goal{{Of: "ratio", AtMost: 1.5}}
	many, few := size{runners: 500}, size{runners: 10}
	long, short := size{2, 100_000}, size{2, 1_000}
	return []Row{{
		Name: "flat/claim/runners", What: claim + " with 500 idle runners.", Floor: "The same with 10, on a second server.",
		Unit: Milliseconds, Per: "claim", Goals: goals, Open: openFlatClaim(many, few),
	}, {
		Name: "flat/first-output/runners", What: output + " with 500 idle runners.", Floor: "The same with 10, on a second server.",
		Unit: Milliseconds, Per: "start", Goals: goals, Open: openFlatOutput(many, few),
	}, {
		Name: "flat/claim/history", What: claim + " with 100,000 finished executions stored.", Floor: "The same with 1,000, on a second server.",
		Unit: Milliseconds, Per: "claim", Goals: goals, Open: openFlatClaim(long, short),
	}, {
		Name: "flat/first-output/history", What: output + " with 100,000 finished executions stored.", Floor: "The same with 1,000, on a second server.",
		Unit: Milliseconds, Per: "start", Goals: goals, Open: openFlatOutput(long, short),
	}}
}

func openFlatClaim(large, small size) func(context.Context, *bed) (pair, error) {
	return func(ctx context.Context, b *bed) (pair, error) {
		return flat(ctx, b, large, small, func(_ context.Context, s *target, of size) (probe, error) {
			return func(ctx context.Context, r *round) error { return claims(ctx, s, r, of.runners, 1, b.ops(10)) }, nil
		})
	}
}

func openFlatOutput(large, small size) func(context.Context, *bed) (pair, error) {
	return func(ctx context.Context, b *bed) (pair, error) {
		return flat(ctx, b, large, small, func(ctx context.Context, s *target, of size) (probe, error) {
			runner, err := s.claim(ctx)
			if err != nil {
				return nil, err
			}
			k, err := s.dial(ctx)
			if err != nil {
				return nil, err
			}
			b.onClose(func() error { k.close(); return nil })
			return func(ctx context.Context, r *round) error {
				return repeat(b.ops(30), func() error { return firstOutput(ctx, s, k, runner, r) })
			}, s.settle(ctx, of.runners)
		})
	}
}

// flat makes a server of either size, and what measures it.
func flat(ctx context.Context, b *bed, large, small size, prepare func(context.Context, *target, size) (probe, error)) (pair, error) {
	var probes [2]probe
	for i, of := range []size{large, small} {
		s, err := b.serve(ctx, of.runners, of.executions)
		if err != nil {
			return pair{}, err
		}
		if probes[i], err = prepare(ctx, s, of); err != nil {
			return pair{}, err
		}
	}
	return pair{row: probes[0], floor: probes[1]}, warm(ctx, probes[:]...)
}
