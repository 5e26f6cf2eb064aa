package uids

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/test/need"
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

func TestRootNeedsTheIDsOfSandboxes(t *testing.T) {
	for table, want := range map[string]bool{
		"         0          0 4294967295\n":        true,
		"         0       1000          1\n":        false, // unshare -Ur
		"0 1000 1\n1 100000 65536\n":                false, // podman unshare
		"         0     100000      65536\n":        false, // an unprivileged container
		"":                                          false,
		"         5          5 4294967290\n":        false,
		"         0 0 4294967295\n         7 7 1\n": true,
	} {
		if got := mapsAll(table); got != want {
			t.Errorf("%q: got %t", table, got)
		}
	}
}

// A range is in use as long as a process has one of its ids, even if its holder, or all links, were deleted.
func TestRangesOfProcessesAreInUse(t *testing.T) {
	need.Sandboxes(t) // root
	const first, size = 1_900_000_000, 1000
	start := func(uid, gid uint32, groups ...uint32) (end func()) {
		t.Helper()
		cmd := exec.Command("sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid, Groups: groups}, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		end = sync.OnceFunc(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
		t.Cleanup(end)
		return end
	}
	endUser := start(first+7, 0)
	endGroup := start(0, first+size+999)
	endGroups := start(0, 0, first+2*size)
	dir := filepath.Join(t.TempDir(), "uids")
	ranges := func() *Ranges { return &Ranges{Dir: dir, Count: 4, First: first, Size: size} }
	mine := holder(t)
	take := func(r *Ranges, want int) {
		t.Helper()
		n, err := r.Take(mine)
		if err == nil && n != want || (err == nil) != (want >= 0) {
			t.Errorf("got %d, %v; want %d", n, err, want)
		}
	}
	for n := range 3 { // of servers whose data was deleted
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Symlink("/nonesuch/runner", filepath.Join(dir, strconv.Itoa(n)))); err != nil {
			t.Fatal(err)
		}
	}
	r := ranges()
	take(r, 3)
	take(r, -1)
	endGroup()
	take(r, 1)
	if err := os.RemoveAll(dir); err != nil { // the links, too
		t.Fatal(err)
	}
	r = ranges()
	take(r, 1)
	take(r, 3)
	take(r, -1)
	endUser()
	endGroups()
	take(r, 0)
	take(r, 2)
	start(first+2*size, 0)
	if err := os.RemoveAll(dir); err != nil { // while the server runs
		t.Fatal(err)
	}
	for _, want := range []int{3, 0, 1, -1} {
		take(r, want)
	}
}
