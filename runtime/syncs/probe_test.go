package syncs

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestManyCallersShareATry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		p := NewProbe(func() error { tries++; time.Sleep(100 * time.Millisecond); return nil })
		defer p.Close()
		for second := 1; second <= 3; second++ {
			var callers sync.WaitGroup
			for range 1000 {
				callers.Go(func() {
					if _, err := p.Check(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			callers.Wait()
			if tries != second {
				t.Errorf("%d tries in %d seconds", tries, second)
			}
			time.Sleep(every)
		}
	})
}

func TestAnAnswerIsAtMostASecondOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		var now error
		p := NewProbe(func() error { return now })
		defer p.Close()
		for _, now = range []error{nil, broken, nil} {
			asked := time.Now()
			if began, err := p.Check(t.Context()); !errors.Is(err, now) || !began.Equal(asked) {
				t.Errorf("the answer is %v, of a try at %v; now it is %v, at %v", err, began, now, asked)
			}
			time.Sleep(every)
		}
	})
}

// TestHangingTryIsLate checks that callers get ErrProbeLate in time, later ones immediately, and that
// this ends with the try.
func TestHangingTryIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := NewProbe(func() error { <-release; return nil })
		defer p.Close()
		began := time.Now()
		for range 2 {
			if _, err := p.Check(t.Context()); !errors.Is(err, ErrProbeLate) || time.Since(began) != patience {
				t.Errorf("after %v the answer is %v", time.Since(began), err)
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(context.Canceled)
		if _, err := p.Check(ctx); err == nil {
			t.Error("a try that hangs is well")
		}
		close(release)
		synctest.Wait()
		if _, err := p.Check(t.Context()); err != nil {
			t.Errorf("once it has ended the answer is %v", err)
		}
	})
}

func TestNoTryAfterClose(t *testing.T) {
	p := NewProbe(func() error { t.Error("it was tried"); return nil })
	p.Close()
	if _, err := p.Check(t.Context()); err == nil {
		t.Error("what is closed is well")
	}
}
