package chaos

import (
	"testing"
	"time"
)

func TestSeedsReproduceSchedules(t *testing.T) {
	const seed, faults = 7, 100
	one, same, other := newSchedule(seed, time.Second), newSchedule(seed, time.Second), newSchedule(seed+1, time.Second)
	differs := false
	for range faults {
		f := one.next()
		if again := same.next(); again != f {
			t.Fatalf("%+v, and then %+v", f, again)
		}
		differs = differs || other.next() != f
	}
	if !differs {
		t.Error("another seed has the same schedule")
	}
}

// TestSchedulesHaveEverything: in every round there is every kind of fault, and a
// kill at every moment.
func TestSchedulesHaveEverything(t *testing.T) {
	s := newSchedule(1, time.Second)
	const round = int(moments) + int(faultKinds) - 1
	for range 5 {
		kinds, at := map[faultKind]int{}, map[moment]int{}
		for range round {
			f := s.next()
			kinds[f.kind]++
			if f.kind == killServer {
				at[f.moment]++
			}
			if f.wait < time.Second/2 || f.wait >= 3*time.Second/2 || f.after < 0 || f.after > time.Second || f.String() == "" {
				t.Errorf("%+v", f)
			}
		}
		for kind := range faultKinds {
			if want := map[bool]int{true: int(moments), false: 1}[kind == killServer]; kinds[kind] != want {
				t.Errorf("%d faults are of kind %d, not %d", kinds[kind], kind, want)
			}
		}
		if len(at) != int(moments) {
			t.Errorf("kills at %v", at)
		}
	}
}
