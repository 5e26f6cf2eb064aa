package rows

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rockpool/rockpool/test/bench/measure"
)

// A Load is an operation that clients repeat without a pause, until it was measured for long
// enough.
type Load struct {
	Clients int
	Skip    int           // first operations that don't count: they use up the pool
	AtLeast int           // operations that count
	Lasts   time.Duration // minimum duration
}

// Measure runs the clients and adds a rate, and the latencies of the operations that count.
// Operations that have begun end before it returns.
func (l Load) Measure(ctx context.Context, r *measure.Round, do func(ctx context.Context) error) error {
	group, inner := errgroup.WithContext(ctx)
	done, stop := make(chan time.Duration), make(chan struct{})
	for range l.Clients {
		group.Go(func() error { return repeatUntil(inner, stop, done, do) })
	}
	end := sync.OnceFunc(func() { close(stop) })
	defer end()
	next := func() (took time.Duration, ok bool) {
		select {
		case took = <-done:
			return took, true
		case <-inner.Done():
			return 0, false
		}
	}
	for range l.Skip {
		if _, ok := next(); !ok {
			return group.Wait()
		}
	}
	err := r.Count(func() (float64, error) {
		began, n := time.Now(), 0
		for ; n < l.AtLeast || time.Since(began) < l.Lasts; n++ {
			took, ok := next()
			if !ok {
				return 0, context.Cause(inner)
			}
			r.Took(took)
		}
		return float64(n), nil
	})
	end()
	if failed := group.Wait(); failed != nil {
		return failed
	}
	return err
}

// repeatUntil repeats an operation, and sends the duration of each to done.
func repeatUntil(ctx context.Context, stop <-chan struct{}, done chan<- time.Duration, do func(ctx context.Context) error) error {
	for {
		began := time.Now()
		if err := do(ctx); err != nil {
			return err
		}
		select {
		case done <- time.Since(began):
		case <-stop:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
