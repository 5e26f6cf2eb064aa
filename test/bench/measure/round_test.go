package measure

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Round{}
		if err := r.Rate(50, func() error { time.Sleep(500 * time.Millisecond); return nil }); err != nil || !slices.Equal(r.Samples, []float64{100}) {
			t.Errorf("%v, %v", r.Samples, err)
		}
		if err := r.Rate(50, func() error { return errors.New("broken") }); err == nil || len(r.Samples) != 1 {
			t.Errorf("what failed is a sample: %v, %v", r.Samples, err)
		}
	})
}
