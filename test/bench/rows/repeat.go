package rows

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// Repeat calls do n times in sequence.
func Repeat(n int, do func() error) error {
	for range n {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// Concurrently calls do n times in all, with width concurrent workers.
func Concurrently(ctx context.Context, width, n int, do func(ctx context.Context, worker int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	var begun atomic.Int64
	for worker := range width {
		group.Go(func() error {
			for begun.Add(1) <= int64(n) {
				if err := do(ctx, worker); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}
