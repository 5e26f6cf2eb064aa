package backoff_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/runtime/backoff"
)

func TestPausesGrow(t *testing.T) {
	for _, test := range []struct {
		b    backoff.Backoff
		want []time.Duration
	}{
		{backoff.Backoff{First: 20, Last: 90}, []time.Duration{20, 40, 80, 90, 90}},
		{backoff.Backoff{First: 1, Last: 20, Factor: 4}, []time.Duration{1, 4, 16, 20, 20}},
	} {
		for round := range 2 {
			for i, want := range test.want {
				if got := test.b.Next(); got != want {
					t.Errorf("round %d, pause %d: %d, not %d", round, i, got, want)
				}
			}
			test.b.Reset()
		}
	}
}

func TestJitterTakesUpToAHalf(t *testing.T) {
	b := backoff.Backoff{First: time.Second, Last: time.Second, Jitter: true}
	different := map[time.Duration]bool{}
	for range 100 {
		pause := b.Next()
		if pause < time.Second/2 || pause > time.Second {
			t.Errorf("%v", pause)
		}
		different[pause] = true
	}
	if len(different) < 2 {
		t.Error("all pauses are alike")
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := backoff.Backoff{First: time.Minute, Last: time.Hour}
		began := time.Now()
		if err := b.Wait(t.Context()); err != nil || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		ended := errors.New("ended")
		ctx, end := context.WithCancelCause(t.Context())
		end(ended)
		if err := b.Wait(ctx); err != ended || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
