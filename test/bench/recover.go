package main

import "context"

func recoverRows() []Row {
	return []Row{{
		Name:  "recover/250",
		What:  "From the SIGKILL of a server with 200 idle and 50 claimed runners until the next one has taken all of them over and says so through the API.",
		Floor: "The same of a server that has none.",
		Unit:  Milliseconds,
		Goals: []Goal{{Of: "p50", AtMost: 1000}, {Of: "p99", AtMost: 1000}},
		Open:  openRecover,
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
		return restarts(ctx, full, r, idle, claimed)
	}
	floor := func(ctx context.Context, r *round) error { return restarts(ctx, empty, r, 0, 0) }
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
