package main

import (
	"context"
	"fmt"
	"os/exec"
)

var widths = []int{1, 2, 8, 32}

func trueRows() []Row {
	var all []Row
	for _, width := range widths {
		row := Row{
			Name: fmt.Sprintf("true/engine/%d", width),
			What: fmt.Sprintf("Executions of `true` per second at the engine, without the API: %d at once, each in a runner of its own; "+
				"each is stored before it starts and after it has ended.", width),
			Floor: fmt.Sprintf("os/exec: `true` without a sandbox, %d at once.", width),
			Unit:  PerSecond, Per: "true",
			Open: func(ctx context.Context, b *bed) (pair, error) {
				e, err := b.engine(ctx, 2)
				if err != nil {
					return pair{}, err
				}
				return openTrue(ctx, b, width,
					func(ctx context.Context) (string, error) { return e.Claim(ctx, environment) },
					func(context.Context) error { return nil },
					func(ctx context.Context, runner string) error { return e.Run(ctx, runner, "true") })
			},
		}
		if width == 8 {
			row.Goals = []Goal{{Of: "p50", AtLeast: 1000}}
		}
		all = append(all, row)
	}
	for _, width := range widths {
		row := Row{
			Name:  fmt.Sprintf("true/graphql/%d", width),
			What:  fmt.Sprintf("The same through GraphQL over HTTP, with this client on the same CPUs: startExecution, then execution(waitFor), %d at once.", width),
			Floor: fmt.Sprintf("os/exec: `true` without a sandbox, %d at once.", width),
			Unit:  PerSecond, Per: "true",
			Open: func(ctx context.Context, b *bed) (pair, error) {
				s, err := b.serve(ctx, 2, 0)
				if err != nil {
					return pair{}, err
				}
				return openTrue(ctx, b, width, s.claim, func(ctx context.Context) error { return s.settle(ctx, 2) },
					func(ctx context.Context, runner string) error { return s.run(ctx, runner, "true") })
			},
		}
		if width == 8 {
			row.Goals = []Goal{{Of: "p50", AtLeast: 600}}
		}
		all = append(all, row)
	}
	return all
}

// openTrue claims a runner for each that runs at once, and lets the pool settle.
func openTrue(ctx context.Context, b *bed, width int, claim func(context.Context) (string, error), settle func(context.Context) error,
	run func(ctx context.Context, runner string) error,
) (pair, error) {
	runners := make([]string, width)
	for i := range runners {
		var err error
		if runners[i], err = claim(ctx); err != nil {
			return pair{}, err
		}
	}
	if err := settle(ctx); err != nil {
		return pair{}, err
	}
	n := b.ops(500)
	row := func(ctx context.Context, r *round) error {
		return r.rate(float64(n), func() error {
			return atOnce(ctx, width, n, func(ctx context.Context, worker int) error { return run(ctx, runners[worker]) })
		})
	}
	floor := func(ctx context.Context, r *round) error {
		return r.rate(float64(n), func() error {
			return atOnce(ctx, width, n, func(ctx context.Context, _ int) error { return exec.CommandContext(ctx, "true").Run() })
		})
	}
	return pair{row: row, floor: floor}, warm(ctx, row, floor)
}
