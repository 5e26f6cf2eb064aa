package main

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &round{}
		if err := r.rate(50, func() error { time.Sleep(500 * time.Millisecond); return nil }); err != nil || !slices.Equal(r.samples, []float64{100}) {
			t.Errorf("%v, %v", r.samples, err)
		}
		if err := r.rate(50, func() error { return errors.New("broken") }); err == nil || len(r.samples) != 1 {
			t.Errorf("what failed is a sample: %v, %v", r.samples, err)
		}
	})
}
