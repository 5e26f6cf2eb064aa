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
		What:  "Evaluations per second of the local cluster's scheduler: 5,000 wishes of 20 environments come at once, each is evaluated, planned against a machine that has room for all, and placed; who carries that out does nothing.",
		Floor: "As many messages, which two goroutines take from a channel and note in one map.",
		Unit:  measure.PerSecond, Per: "evaluation",
		Open: openSchedule,
	}}
}

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
			return rows.AtOnce(ctx, 2, n, func(context.Context, int) error {
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
