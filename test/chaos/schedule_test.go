package main

import (
	"testing"
	"time"
)

func TestSeedsReproduceSchedules(t *testing.T) {
	const seed, faults = 7, 100
	one, same, other := newSchedule(seed, time.Second, nomadFaults()), newSchedule(seed, time.Second, nomadFaults()), newSchedule(seed+1, time.Second, nomadFaults())
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
	s := newSchedule(1, time.Second, hereFaults())
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

// TestNomadHasEverything: in a round on Nomad, every fault of runners there
// comes once, and none of what only this machine has.
func TestNomadHasEverything(t *testing.T) {
	kinds := map[faultKind]int{}
	for _, f := range nomadFaults() {
		kinds[f.kind]++
		if f.moment == atMaking {
			t.Errorf("nobody sees when: %s", f)
		}
		if f.String() == "" {
			t.Errorf("%d has no name", f.kind)
		}
	}
	for kind := range nomadKinds {
		want := 1
		switch kind {
		case killServer:
			want = int(moments) - 1
		case stopRestore, killHeld, killIdle, killStarting, destroyHeld, destroyDown, faultKinds:
			want = 0
		}
		if kind != fillDisk && kinds[kind] != want {
			t.Errorf("%d faults are of kind %d, not %d", kinds[kind], kind, want)
		}
	}
}
