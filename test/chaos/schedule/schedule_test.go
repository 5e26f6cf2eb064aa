package schedule

import (
	"testing"
	"time"

	"github.com/rockpool/rockpool/test/chaos/moment"
)

func TestSeedsReproduceSchedules(t *testing.T) {
	const seed, faults = 7, 100
	one, same, other := New(seed, time.Second, OnNomad()), New(seed, time.Second, OnNomad()), New(seed+1, time.Second, OnNomad())
	differs := false
	for range faults {
		f := one.Next()
		if again := same.Next(); again != f {
			t.Fatalf("%+v, and then %+v", f, again)
		}
		differs = differs || other.Next() != f
	}
	if !differs {
		t.Error("another seed has the same schedule")
	}
}

// TestSchedulesHaveEverything: every round has every kind of fault, and a kill at every moment.
func TestSchedulesHaveEverything(t *testing.T) {
	s := New(1, time.Second, Here())
	const round = int(moment.Count) + int(hereKinds) - 1
	for range 5 {
		kinds, at := map[Kind]int{}, map[moment.Moment]int{}
		for range round {
			f := s.Next()
			kinds[f.Kind]++
			if f.Kind == KillServer {
				at[f.Moment]++
			}
			if f.Wait < time.Second/2 || f.Wait >= 3*time.Second/2 || f.After < 0 || f.After > time.Second || f.String() == "" {
				t.Errorf("%+v", f)
			}
		}
		for kind := range hereKinds {
			if want := map[bool]int{true: int(moment.Count), false: 1}[kind == KillServer]; kinds[kind] != want {
				t.Errorf("%d faults are of kind %d, not %d", kinds[kind], kind, want)
			}
		}
		if len(at) != int(moment.Count) {
			t.Errorf("kills at %v", at)
		}
	}
}

// TestNomadSchedulesHaveEverything: a round on Nomad has every fault of runners there once, and
// none of those that only this machine has.
func TestNomadSchedulesHaveEverything(t *testing.T) {
	kinds := map[Kind]int{}
	for _, f := range OnNomad() {
		kinds[f.Kind]++
		if f.Moment == moment.Making {
			t.Errorf("its moment is invisible on Nomad: %s", f)
		}
		if f.String() == "" {
			t.Errorf("%d has no name", f.Kind)
		}
	}
	for kind := range nomadKinds {
		want := 1
		switch kind {
		case KillServer:
			want = int(moment.Count) - 1
		case StopRestore, KillHeld, KillIdle, KillStarting, DestroyHeld, DestroyDown, hereKinds:
			want = 0
		}
		if kind != FillDisk && kinds[kind] != want {
			t.Errorf("%d faults are of kind %d, not %d", kinds[kind], kind, want)
		}
	}
}
