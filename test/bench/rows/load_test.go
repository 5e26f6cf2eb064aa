package rows

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/test/bench/measure"
)

// TestLoadLeavesOutWhatTheStockServes: a stock of runners makes the first operations fast.
func TestLoadLeavesOutWhatTheStockServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done, running atomic.Int32
		r := &measure.Round{}
		l := Load{Clients: 2, Skip: 10, AtLeast: 4, Lasts: time.Second}
		err := l.Measure(t.Context(), r, func(context.Context) error {
			running.Add(1)
			defer running.Add(-1)
			if done.Add(1) <= 10 {
				time.Sleep(time.Millisecond)
			} else {
				time.Sleep(100 * time.Millisecond)
			}
			return nil
		})
		if err != nil || len(r.Samples) != 1 || r.Samples[0] < 19 || r.Samples[0] > 21 {
			t.Errorf("%v per second, want 20: %v", r.Samples, err)
		}
		if len(r.Latency) < 18 || r.Latency[0] < 99 || running.Load() != 0 {
			t.Errorf("latencies %v; %d still run", r.Latency, running.Load())
		}
	})
}

func TestLoadEndsWithTheFirstError(t *testing.T) {
	broken := errors.New("broken")
	for _, skip := range []int{0, 5} {
		r := &measure.Round{}
		var done atomic.Int32
		err := Load{Clients: 3, Skip: skip, Lasts: time.Hour}.Measure(t.Context(), r, func(context.Context) error {
			if done.Add(1) > 3 {
				return broken
			}
			return nil
		})
		if !errors.Is(err, broken) || len(r.Samples) > 0 {
			t.Errorf("skip %d: %v, %v", skip, err, r.Samples)
		}
	}
}
