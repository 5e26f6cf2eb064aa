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

func TestBesideIsTheTimeOfNeitherServerNorRunners(t *testing.T) {
	r := &Round{operations: 10, metered: true, server: 20 * time.Millisecond, inside: 30 * time.Millisecond, machine: 150 * time.Millisecond}
	if got := *r.CPU(); got != (CPU{Server: 2, Inside: 3, Other: 10}) {
		t.Errorf("%+v", got)
	}
	// The machine's time is counted in ticks, so it can be less than that of its parts.
	r.machine = 40 * time.Millisecond
	if got := *r.CPU(); got != (CPU{Server: 2, Inside: 3}) {
		t.Errorf("%+v", got)
	}
	if got := (&Round{operations: 1}).CPU(); got != nil {
		t.Errorf("%+v, but nothing was counted", got)
	}
}
