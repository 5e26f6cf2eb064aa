package main

import (
	"context"
	"strconv"
	"sync"
)

func scheduleRows() []Row {
	return []Row{{
		Name:  "schedule",
		What:  "Evaluations per second of the local cluster's scheduler: 5,000 wishes of 20 environments come at once, each is evaluated, planned against a machine that has room for all, and placed; who carries that out does nothing.",
		Floor: "As many messages, which two goroutines take from a channel and note in one map.",
		Unit:  PerSecond, Per: "evaluation",
		Open: openSchedule,
	}}
}

func openSchedule(ctx context.Context, b *bed) (pair, error) {
	n := b.ops(5000)
	row := func(ctx context.Context, r *round) error {
		return r.rate(float64(n), func() error { return placeAll(ctx, n) })
	}
	floor := func(ctx context.Context, r *round) error {
		return r.rate(float64(n), func() error {
			wishes := make(chan string, n)
			for i := range n {
				wishes <- strconv.Itoa(i)
			}
			var mu sync.Mutex // guards placed
			placed := map[string]bool{}
			return atOnce(ctx, 2, n, func(context.Context, int) error {
				wish := <-wishes
				mu.Lock()
				defer mu.Unlock()
				placed[wish] = true
				return nil
			})
		})
	}
	return pair{row: row, floor: floor}, warm(ctx, row, floor)
}
