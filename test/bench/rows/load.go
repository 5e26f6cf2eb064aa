package rows

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rockpool/rockpool/test/bench/measure"
)

// A Load is what clients do again and again, until it has been measured for long
// enough.
type Load struct {
	Clients int
	Skip    int           // so many are done before any counts: they use up what was there beforehand
	AtLeast int           // so many count
	Lasts   time.Duration // at least
}

// Measure has the clients go on, and adds a rate and the latencies of what was done
// while it was measured. Those that have begun end before it returns.
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

// repeatUntil does something again and again, and reports how long each took.
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
