package executions

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
)

// widths are the numbers of concurrent executions.
var widths = []int{1, 2, 8, 32}

// True returns the rows of executions per second, directly at the engine and over the API.
func True() []rows.Row {
	var all []rows.Row
	for _, width := range widths {
		row := rows.Row{
			Name: fmt.Sprintf("true/engine/%d", width),
			What: fmt.Sprintf("Executions of `true` per second at the engine, without the API: %d concurrent, each in a runner of its own; "+
				"the store is written before each start and after each end.", width),
			Floor: fmt.Sprintf("os/exec: `true` without a sandbox, %d concurrent.", width),
			Unit:  measure.PerSecond, Per: "true",
			Open: func(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
				e, err := b.Engine(ctx, 2)
				if err != nil {
					return rows.Pair{}, err
				}
				return openTrue(ctx, b, width,
					func(ctx context.Context) (string, error) { return e.Claim(ctx, bed.Environment) },
					func(context.Context) error { return nil },
					func(ctx context.Context, runner string) error { return e.Run(ctx, runner, "true") })
			},
		}
		if width == 8 {
			row.Goals = []measure.Goal{{Of: "p50", AtLeast: 1000}}
		}
		all = append(all, row)
	}
	for _, width := range widths {
		row := rows.Row{
			Name:  fmt.Sprintf("true/graphql/%d", width),
			What:  fmt.Sprintf("Executions of `true` per second through GraphQL over HTTP, with the client on the same CPUs: startExecution, then execution(waitFor), %d concurrent.", width),
			Floor: fmt.Sprintf("os/exec: `true` without a sandbox, %d concurrent.", width),
			Unit:  measure.PerSecond, Per: "true",
			Open: func(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
				s, err := b.Serve(ctx, 2, 0)
				if err != nil {
					return rows.Pair{}, err
				}
				return openTrue(ctx, b, width, s.Claim, func(ctx context.Context) error { return s.Settle(ctx, 2) },
					func(ctx context.Context, runner string) error { return s.Run(ctx, runner, "true") })
			},
		}
		if width == 8 {
			row.Goals = []measure.Goal{{Of: "p50", AtLeast: 600}}
		}
		all = append(all, row)
	}
	return all
}

// openTrue claims a runner for each concurrent execution, and waits until the pool is full.
func openTrue(ctx context.Context, b *bed.Bed, width int, claim func(context.Context) (string, error), settle func(context.Context) error,
	run func(ctx context.Context, runner string) error,
) (rows.Pair, error) {
	runners := make([]string, width)
	for i := range runners {
		var err error
		if runners[i], err = claim(ctx); err != nil {
			return rows.Pair{}, err
		}
	}
	if err := settle(ctx); err != nil {
		return rows.Pair{}, err
	}
	n := b.Ops(500)
	row := func(ctx context.Context, r *measure.Round) error {
		return r.Rate(float64(n), func() error {
			return rows.Concurrently(ctx, width, n, func(ctx context.Context, worker int) error { return run(ctx, runners[worker]) })
		})
	}
	floor := func(ctx context.Context, r *measure.Round) error {
		return r.Rate(float64(n), func() error {
			return rows.Concurrently(ctx, width, n, func(ctx context.Context, _ int) error { return exec.CommandContext(ctx, "true").Run() })
		})
	}
	return rows.Pair{Row: row, Floor: floor}, rows.Warm(ctx, row, floor)
}
