package timing

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// TestMomentsSurviveAStep stores a deadline, steps the wall clock, and reads the deadline in another process of the
// same boot. A step before the deadline was stored looks the same as one afterwards: the stored wall time is wrong.
func TestMomentsSurviveAStep(t *testing.T) {
	for _, step := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute, 24 * 365 * time.Hour} {
		deadline := time.Now().Add(time.Minute)
		text, err := json.Marshal(runtime.Claim{ExpiresAt: deadline.Add(step), Expires: ReadBoot().Moment(deadline)})
		var stored runtime.Claim
		if err == nil {
			err = json.Unmarshal(text, &stored)
		}
		if err != nil {
			t.Fatal(err)
		}
		// Both boots read the two clocks one after the other, and this machine may be busy.
		if off := ReadBoot().Time(stored.Expires, stored.ExpiresAt).Sub(deadline).Abs(); off > 5*time.Second {
			t.Errorf("after a step of %v the deadline has moved by %v", step, off)
		}
		stored.Expires.Boot = "another"
		for _, boot := range []Boot{ReadBoot(), {}} {
			if got := boot.Time(stored.Expires, stored.ExpiresAt); !got.Round(0).Equal(deadline.Add(step).Round(0)) {
				t.Errorf("after a boot the deadline is %v, not the stored %v", got, stored.ExpiresAt)
			}
		}
	}
}

// TestUnknownMoments checks the zero values: no deadline stays none, and an unknown boot has no moments.
func TestUnknownMoments(t *testing.T) {
	boot := ReadBoot()
	if boot == (Boot{}) {
		t.Error("the boot is unknown")
	}
	if got := boot.Time(runtime.Moment{}, time.Time{}); !got.IsZero() {
		t.Error(got)
	}
	if got := []runtime.Moment{boot.Moment(time.Time{}), Boot{}.Moment(time.Now())}; got[0] != (runtime.Moment{}) || got[1] != (runtime.Moment{}) {
		t.Error(got)
	}
}
