package access

import "testing"

// Runners that take all they get leave some for others, and at least one for each.
func TestBusyRunnersLeaveSlotsForOthers(t *testing.T) {
	slots := newSharedSlots(32, 9)
	var releases []func()
	take := func(s *runnerSlots) (n int) {
		for {
			release, ok := s.Take()
			if !ok {
				return n
			}
			releases = append(releases, release)
			n++
		}
	}
	for range 2 {
		for i, want := range []int{9, 9, 9, 5, 3, 2, 2, 1, 1} {
			if n := take(slots.Share()); n != want {
				t.Errorf("runner %d gets %d, want %d", i, n, want)
			}
		}
		for _, release := range releases {
			release()
		}
		releases = nil
	}
	share := slots.Share()
	if n := take(share); n != 9 {
		t.Errorf("a runner gets %d of its 9, want 9", n)
	}
	releases[0]()
	releases[5]()
	if n := len(releases); take(share) != 2 {
		t.Errorf("of %d slots, 2 released ones can't be taken again", n)
	}
}
