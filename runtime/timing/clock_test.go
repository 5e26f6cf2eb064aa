package timing

import (
	"testing"
	"time"

	"github.com/rockpool/rockpool/test/clock"
)

// TestClocksIgnoreSteps has a clock that began before the wall clock was stepped.
func TestClocksIgnoreSteps(t *testing.T) {
	for _, step := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		began := time.Now()
		c := Clock{clock.Step(began, -step)} // the present wall time is step ahead
		now := c.Now()
		wall, passed := now.Round(0).Sub(c.Began.Round(0)), now.Sub(began)
		if wall != passed {
			t.Errorf("%v passed, and it shows %v", passed, wall)
		}
		deadline := c.Now().Add(time.Minute)
		if got := c.Anchor(deadline.Round(0)); got.Sub(deadline) != 0 {
			t.Errorf("a stored deadline moved by %v, want 0", got.Sub(deadline))
		}
	}
	if !NewClock().Anchor(time.Time{}).IsZero() {
		t.Error("no deadline became one")
	}
}
