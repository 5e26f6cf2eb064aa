package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/test/sandboxtest"
)

// unifiedTree makes a directory that looks like a version 2 tree with one divided cgroup,
// /rockpool/a. Plain directories have the same modes as cgroups, so these tests run on every
// machine; scripts/vm-helper runs a server without root on real cgroups of version 2.
func unifiedTree(t *testing.T) (trees Hierarchies, dir string) {
	t.Helper()
	mount := sandboxtest.OpenDir(t)
	dir = filepath.Join(mount, "rockpool", "a")
	for _, at := range append(slots(filepath.Join(dir, Commands)), filepath.Join(dir, Agent), filepath.Join(dir, Commands), dir) {
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"memory.events": "oom_kill 1\n", "pids.events": "max 1\n", "cgroup.procs": ""} {
			if err := os.WriteFile(filepath.Join(at, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(mount, "cgroup.controllers"), []byte("cpu memory pids\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return Hierarchies{{Mount: mount, Root: "/", V2: true}}, dir
}

// TestUnreadableGroupIsAnError: if a process may not search the parent, it can't tell whether a
// cgroup exists. Each query then returns an error with the path; with permission, the right answer.
func TestUnreadableGroupIsAnError(t *testing.T) {
	trees, dir := unifiedTree(t)
	group := Group{Dir: dir, V2: true}
	groups := Groups{Memory: group, Processes: group, CPU: group}
	parent := filepath.Dir(dir)
	questions := map[string]func() error{
		"Of": func() error {
			got, err := trees.of(1, "0::/rockpool/a/agent\n")
			if err == nil && got != groups {
				t.Errorf("the groups are %+v", got)
			}
			return err
		},
		"Counts": func() error {
			kills, hits, err := groups.Counts()
			if err == nil && (kills != 1 || hits != 6) {
				t.Errorf("%d kills and %d refused forks are counted", kills, hits)
			}
			return err
		},
		"Counter.Counts": func() error {
			c := NewCounter(groups)
			defer c.Close()
			_, _, err := c.Counts()
			return err
		},
		"Exists": func() error {
			there, err := trees.Exists("/rockpool/a")
			if err == nil && !there {
				t.Error("it is missing")
			}
			return err
		},
		"Readable": func() error { return trees.Readable("/rockpool/a") },
	}
	ask := func(check func(name string, err error)) {
		for name, question := range questions {
			sandboxtest.AsNobody(t, func() { check(name, question()) })
		}
	}
	ask(func(name string, err error) {
		if err != nil {
			t.Errorf("%s of a readable group: %v", name, err)
		}
	})
	questions["Remove"] = func() error { return trees.Remove(t.Context(), "/rockpool/a") }
	mode(t, parent, 0)
	t.Cleanup(func() { mode(t, parent, 0o755) })
	ask(func(name string, err error) {
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s of a group that can't be read: %v", name, err)
		}
	})
}

// TestGroupsAreReadableWhateverTheUmask: Prepare makes the cgroups that it makes or finds readable
// for everybody, and grants nothing more.
func TestGroupsAreReadableWhateverTheUmask(t *testing.T) {
	trees, _ := unifiedTree(t)
	before := unix.Umask(0o077)
	defer unix.Umask(before)
	found := filepath.Join(trees[0].Mount, "rockpool")
	mode(t, found, 0o700) // as made by a server with this umask
	if err := trees.Prepare("/rockpool/b"); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{found, filepath.Join(found, "b")} {
		info, err := os.Lstat(at)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o755 {
			t.Errorf("%s: the mode is %v", at, info.Mode())
		}
	}
	if err := trees.Prepare("/rockpool/b"); err != nil {
		t.Errorf("once more: %v", err)
	}
}

// TestPrepareWhileAnotherServerRemovesGroups: an ending server removes empty cgroups while Prepare
// works.
func TestPrepareWhileAnotherServerRemovesGroups(t *testing.T) {
	h := Hierarchy{Mount: t.TempDir(), Root: "/", V2: true}
	ends := make(chan struct{}, 3) // each stands for an ending server
	var other sync.WaitGroup
	t.Cleanup(other.Wait)
	defer close(ends)
	other.Go(func() {
		for range ends {
			for os.Remove(filepath.Join(h.Mount, "rockpool")) != nil && t.Context().Err() == nil {
			}
		}
	})
	for range 300 {
		ends <- struct{}{}
		if err := h.Prepare("/rockpool/a"); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(filepath.Join(h.Mount, "rockpool", "a"))
	}
}

// TestPrepareKeepsPermissions: an existing cgroup keeps the other permissions of its mode.
func TestPrepareKeepsPermissions(t *testing.T) {
	trees, _ := unifiedTree(t)
	found := filepath.Join(trees[0].Mount, "rockpool")
	mode(t, found, fs.ModeSetgid|0o770)
	if err := trees.Prepare("/rockpool"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(found)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode(); got != fs.ModeDir|fs.ModeSetgid|0o775 {
		t.Errorf("the mode is %v", got)
	}
}

func mode(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}
