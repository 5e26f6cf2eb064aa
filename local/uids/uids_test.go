package uids

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func holder(t *testing.T) string {
	t.Helper()
	return t.TempDir()
}

func TestTakeAndRelease(t *testing.T) {
	r := &Ranges{Dir: filepath.Join(t.TempDir(), "uids"), Count: 2}
	one, other := holder(t), holder(t)
	a, err := r.Take(one)
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Take(other)
	if err != nil || a == b {
		t.Fatalf("%d and %d, %v", a, b, err)
	}
	if n, err := r.Take(one); err == nil {
		t.Errorf("a third of two: %d", n)
	}
	if err := r.Release(a, other); err != nil { // another holder's: nothing happens
		t.Error(err)
	}
	if held, err := r.Held(one); err != nil || len(held) != 0 { // the directory itself isn't below it
		t.Errorf("held below a holder: %v, %v", held, err)
	}
	if held, err := r.Held(filepath.Dir(one)); err != nil || held[a] != one || held[b] != other || len(held) != 2 {
		t.Errorf("held: %v, %v", held, err)
	}
	for range 2 {
		if err := r.Release(a, one); err != nil {
			t.Error(err)
		}
	}
	if n, err := r.Take(one); err != nil || n != a {
		t.Errorf("after the release: %d, %v", n, err)
	}
}

// Several servers find the same ranges without a holder; each range goes to one server.
func TestStaleRangesAreReused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "uids")
	gone := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(gone, 0o700); err != nil {
		t.Fatal(err)
	}
	const count = 20
	old := &Ranges{Dir: dir, Count: count}
	for range count {
		if _, err := old.Take(gone); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	taken := map[int]int{}
	var servers sync.WaitGroup
	for range 4 {
		r, mine := &Ranges{Dir: dir, Count: count}, holder(t)
		servers.Go(func() {
			for range count / 4 {
				n, err := r.Take(mine)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				taken[n]++
				mu.Unlock()
			}
		})
	}
	servers.Wait()
	if len(taken) != count {
		t.Errorf("%d of %d ranges were handed out once: %v", len(taken), count, taken)
	}
}
