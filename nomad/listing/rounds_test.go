package listing

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/nomad/connection"
)

// Lists are read for a fraction of the time, unless they take so long that a caller would wait.
func TestRoundsTakeAFractionOfTheTime(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		time.Millisecond: gap, 40 * time.Millisecond: share * 40 * time.Millisecond, 300 * time.Millisecond: MostGap, time.Minute: time.Minute,
	} {
		synctest.Test(t, func(t *testing.T) {
			var g connection.Group
			var began []time.Time
			r := NewRounds(&g, func(context.Context) error {
				began = append(began, time.Now())
				time.Sleep(took)
				return nil
			})
			for range 3 {
				if err := r.Join(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if every := began[2].Sub(began[1]); every != want {
				t.Errorf("looks of %v begin every %v, want %v", took, every, want)
			}
		})
	}
}
