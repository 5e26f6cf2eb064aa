package syncs

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// runningGroup is a group with the goroutines of its calls.
type runningGroup struct {
	*Group[int]
	*sync.WaitGroup
}

func (r runningGroup) do(ctx context.Context, input string, f func() (int, error)) (int, bool, error) {
	run := func(job func(context.Context)) error {
		r.Go(func() { job(context.Background()) })
		return nil
	}
	return r.Do(ctx, "key", input, run, func(context.Context) (int, error) { return f() })
}

// TestCallContinuesWithoutItsCaller also checks that callers that joined get the result.
func TestCallContinuesWithoutItsCaller(t *testing.T) {
	for name, group := range map[string]func() *Group[int]{"passing": NewGroup[int], "keeping": NewCachingGroup[int]} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := runningGroup{group(), &sync.WaitGroup{}}
				release := make(chan struct{})
				ctx, leave := context.WithCancel(t.Context())
				leave()
				if _, first, err := r.do(ctx, "a", func() (int, error) { <-release; return 1, nil }); !first || !errors.Is(err, context.Canceled) {
					t.Errorf("the first caller leaves: %t, %v", first, err)
				}
				if _, _, err := r.do(t.Context(), "b", nil); !errors.Is(err, ErrInput) {
					t.Errorf("with another input: got %v, want %v", err, ErrInput)
				}
				r.Forget("key") // it is under way: that does nothing
				r.Go(func() {
					if value, first, err := r.do(t.Context(), "a", nil); value != 1 || first || err != nil {
						t.Errorf("the second caller: %d, %t, %v", value, first, err)
					}
				})
				synctest.Wait() // until it waits
				close(release)
				r.Wait()
			})
		})
	}
}

// TestKeepingKeepsValuesUntilForget also checks that errors are never kept.
func TestKeepingKeepsValuesUntilForget(t *testing.T) {
	failure := errors.New("a failure")
	one, two := func() (int, error) { return 1, nil }, func() (int, error) { return 2, nil }
	r := runningGroup{NewCachingGroup[int](), &sync.WaitGroup{}}
	defer r.Wait()
	want := func(value int, first bool, f func() (int, error), failed error) {
		t.Helper()
		if got, mine, err := r.do(t.Context(), "a", f); got != value || mine != first || !errors.Is(err, failed) {
			t.Errorf("%d, %t, %v", got, mine, err)
		}
	}
	want(0, true, func() (int, error) { return 0, failure }, failure)
	want(1, true, one, nil)
	want(1, false, two, nil)
	r.Forget("key")
	want(2, true, two, nil)
	r.Put("key", "a", 3)
	want(3, false, one, nil)
	r.Forget("key")
	_, first, err := r.Do(t.Context(), "key", "a", func(func(context.Context)) error { return failure }, nil)
	if !first || !errors.Is(err, failure) {
		t.Errorf("that can't be run: %t, %v", first, err)
	}
	want(1, true, one, nil)

	r.Group = NewGroup[int]()
	want(1, true, one, nil)
	want(2, true, two, nil)
}

// TestErrors checks that a passing group returns an error to all callers, and a keeping group only
// to the first.
func TestErrors(t *testing.T) {
	failure := errors.New("a failure")
	const callers = 8
	for name, test := range map[string]struct {
		group func() *Group[int]
		runs  int64
	}{"passing": {NewGroup[int], 1}, "keeping": {NewCachingGroup[int], callers}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := runningGroup{test.group(), &sync.WaitGroup{}}
				release := make(chan struct{})
				var runs atomic.Int64
				for range callers {
					r.Go(func() {
						_, _, err := r.do(t.Context(), "a", func() (int, error) { <-release; runs.Add(1); return 0, failure })
						if !errors.Is(err, failure) {
							t.Errorf("got %v, want %v", err, failure)
						}
					})
				}
				synctest.Wait() // until all wait
				close(release)
				r.Wait()
				if runs.Load() != test.runs {
					t.Errorf("it ran %d times, want %d", runs.Load(), test.runs)
				}
			})
		})
	}
}
