package runners

import (
	"context"
	"strconv"
	"sync"

	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
)

// Schedule returns the row of the local scheduler alone.
func Schedule() []rows.Row {
	return []rows.Row{{
		Name:  "schedule",
		What:  "Evaluations per second of the local cluster's scheduler: 5,000 runners of 20 environments are requested in one burst. Each is evaluated, planned on a machine that has capacity for all, and placed. Nothing is started.",
		Floor: "As many messages, which two goroutines receive from a channel and record in one map.",
		Unit:  measure.PerSecond, Per: "evaluation",
		Open: openSchedule,
	}}
}

// openSchedule prepares the row of the scheduler alone. It starts no server.
func openSchedule(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
	n := b.Ops(5000)
	row := func(ctx context.Context, r *measure.Round) error {
		return r.Rate(float64(n), func() error { return placeAll(ctx, n) })
	}
	floor := func(ctx context.Context, r *measure.Round) error {
		return r.Rate(float64(n), func() error {
			wishes := make(chan string, n)
			for i := range n {
				wishes <- strconv.Itoa(i)
			}
			var mu sync.Mutex // guards placed
			placed := map[string]bool{}
			return rows.Concurrently(ctx, 2, n, func(context.Context, int) error {
				wish := <-wishes
				mu.Lock()
				defer mu.Unlock()
				placed[wish] = true
				return nil
			})
		})
	}
	return rows.Pair{Row: row, Floor: floor}, rows.Warm(ctx, row, floor)
}
