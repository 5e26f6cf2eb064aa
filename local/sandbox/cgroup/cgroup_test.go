package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/moby/sys/mountinfo"

	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

func TestParseMount(t *testing.T) {
	for line, want := range map[string]Hierarchy{
		"36 31 0:33 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory":                            {Mount: "/sys/fs/cgroup/memory", Root: "/", Controllers: []string{"memory"}},
		"36 31 0:33 /a /sys/fs/cgroup/cpu,cpuacct rw shared:9 master:1 - cgroup cgroup rw,cpu,cpuacct":        {Mount: "/sys/fs/cgroup/cpu,cpuacct", Root: "/a", Controllers: []string{"cpu", "cpuacct"}},
		"41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate":                     {Mount: "/sys/fs/cgroup/unified", Root: "/", V2: true},
		"40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,release_agent=/lib/systemd/x,name=systemd": {Mount: "/sys/fs/cgroup/systemd", Root: "/", Controllers: []string{"name=systemd"}},
	} {
		mounts, err := mountinfo.GetMountsFromReader(strings.NewReader(line), nil)
		if err != nil || len(mounts) != 1 || !reflect.DeepEqual(hierarchyOf(mounts[0]), want) {
			t.Errorf("%s\nis %+v, %v", line, mounts, err)
		}
	}
}

func TestDir(t *testing.T) {
	for _, c := range []struct{ mount, root, path, want string }{
		{"/m", "/", "/rockpool/a", "/m/rockpool/a"},
		{"/m", "/docker/x", "/docker/x/rockpool/a", "/m/rockpool/a"},
		{"/m", "/docker/x", "/rockpool/a", ""},
		{"/m", "/", "/../x", ""},
		{"/m", "/", "", ""},
	} {
		if got, ok := (Hierarchy{Mount: c.mount, Root: c.root}).dir(c.path); got != c.want || ok != (c.want != "") {
			t.Errorf("%+v: %q, %v", c, got, ok)
		}
	}
}

// files makes a directory that looks like a cgroup of version 2.
func files(t *testing.T, text map[string]string) Group {
	t.Helper()
	dir := t.TempDir()
	for name, value := range text {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Group{Dir: dir, V2: true}
}

// TestCountsAndChecks shows for each version of cgroups which files are read and what they mean; it
// runs on every machine. On real cgroups, TestMemoryLimit, TestProcessLimit and
// TestCheckRefusesOtherProcessesAndGroups in package local do the same for the machine's version;
// make test-vm runs them on version 2.
func TestCountsAndChecks(t *testing.T) {
	for name, version := range map[string]struct {
		v2     bool
		files  map[string]string
		checks map[string]string
	}{
		"version 1": {
			files: map[string]string{"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", "pids.events": "max 3\n"},
			checks: map[string]string{
				"pids.max": "5", "memory.limit_in_bytes": "4096", "memory.memsw.limit_in_bytes": "4096", "cpu.cfs_quota_us": "7", "cpu.cfs_period_us": "100",
			},
		},
		"version 2": {
			v2:     true,
			files:  map[string]string{"memory.events": "low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n", "pids.events": "max 3\n"},
			checks: map[string]string{"pids.max": "5", "memory.max": "4096", "memory.swap.max": "0", "cpu.max": "7 100"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := files(t, version.files)
			g.V2 = version.v2
			groups := Groups{Memory: g, Processes: g, CPU: g}
			kills, hits, err := groups.Counts()
			if kills != 1 || hits != 3 || err != nil {
				t.Errorf("%d, %d, %v", kills, hits, err)
			}
			for _, c := range groups.checks(Limits{Memory: 4096, Processes: 5, CPUQuota: 7, CPUPeriod: 100}) {
				if version.checks[c.file] != c.want {
					t.Errorf("%s should be %s", c.file, c.want)
				}
				delete(version.checks, c.file)
			}
			if len(version.checks) > 0 {
				t.Errorf("not checked: %v", version.checks)
			}
		})
	}
}

// TestCounterReadsPresentValues: a Counter returns the present values although the files stay open,
// and opens them by name each time if they can't stay open.
func TestCounterReadsPresentValues(t *testing.T) {
	g := files(t, nil)
	set := func(oomKills, hits string) {
		t.Helper()
		for file, text := range map[string]string{"memory.events": "oom 9\noom_kill " + oomKills + "\n", "pids.events": "max " + hits + "\n"} {
			if err := os.WriteFile(filepath.Join(g.Dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	early := NewCounter(Groups{Memory: g, Processes: g})
	if _, _, err := early.Counts(); err == nil {
		t.Error("it counts in files that aren't there")
	}
	set("1", "2")
	c := NewCounter(Groups{Memory: g, Processes: g})
	for _, want := range [][2]int64{{1, 2}, {30, 2}, {30, 400}} {
		set(fmt.Sprint(want[0]), fmt.Sprint(want[1]))
		for _, counter := range []*Counter{c, early} {
			if kills, hits, err := counter.Counts(); kills != want[0] || hits != want[1] || err != nil {
				t.Errorf("%d, %d, %v, want %v", kills, hits, err, want)
			}
		}
	}
	c.Close()
	if kills, hits, err := c.Counts(); err == nil {
		t.Errorf("it counts %d, %d after Close", kills, hits)
	}
	c.Close()
}

func TestCountsOfNothing(t *testing.T) {
	for _, g := range []Group{{Dir: "/nonexistent"}, files(t, nil), files(t, map[string]string{"memory.events": "oom 1\n", "pids.events": "max 1\n"})} {
		if kills, hits, err := (Groups{Memory: g, Processes: g, CPU: g}).Counts(); err == nil {
			t.Errorf("%+v counts %d, %d", g, kills, hits)
		}
	}
}

func TestRemoveNothing(t *testing.T) {
	trees, err := Mounted()
	if err != nil {
		t.Fatal(err)
	}
	if err := trees.Remove(t.Context(), "/rockpool/never-there"); err != nil {
		t.Error(err)
	}
}

// TestRemoveSearchesEveryTree has a process in one tree only, in a cgroup that isn't divided.
func TestRemoveSearchesEveryTree(t *testing.T) {
	need.Sandboxes(t)
	trees, err := Mounted()
	if err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/rockpool/test-remove-%d", os.Getpid())
	var last string
	for _, h := range trees {
		last = filepath.Join(h.Mount, path)
		if err := os.MkdirAll(filepath.Join(last, "stranger"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	sleeper := exec.Command("sleep", "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- sleeper.Wait() }()
	t.Cleanup(func() { _ = sleeper.Process.Kill() })
	if err := os.WriteFile(filepath.Join(last, "stranger", "cgroup.procs"), []byte(strconv.Itoa(sleeper.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
	defer cancel()
	if err := trees.Remove(ctx, path); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-ctx.Done():
		t.Error("the process goes on")
	}
	for _, h := range trees {
		if _, err := os.Stat(filepath.Join(h.Mount, path)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s%s is still there: got %v, want %v", h.Mount, path, err, fs.ErrNotExist)
		}
	}
}

// TestPartsDoNotLeadToOtherGroups: a process with the directories of the commands' cgroups can't go
// up from there.
func TestPartsDoNotLeadToOtherGroups(t *testing.T) {
	need.Sandboxes(t)
	trees, err := Mounted()
	if err != nil {
		t.Fatal(err)
	}
	if err := trees.Divisible(); err != nil {
		need.Lacks(t, "groups can't be divided here: %v", err)
	}
	path := fmt.Sprintf("/rockpool/test-parts-%d", os.Getpid())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait.Limit)
		defer cancel()
		if err := trees.Remove(ctx, path); err != nil {
			t.Error(err)
		}
	})
	parts, err := trees.Divide(path, 0, Limits{Memory: 64 << 20, Processes: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		defer p.Dir.Close()
		at := int(p.Dir.Fd())
		var own, above, slot unix.Stat_t
		if err := unix.Fstat(at, &own); err != nil {
			t.Fatal(err)
		}
		if err := unix.Fstatat(at, "x0/cgroup.procs", &slot, 0); err != nil {
			t.Errorf("%s: %v", p.Controller, err)
		}
		for _, name := range []string{"..", "../..", "x0/../../.."} {
			if err := unix.Fstatat(at, name, &above, 0); err != nil || above.Ino != own.Ino || above.Dev != own.Dev {
				t.Errorf("%s: %s leads out of the groups (%v)", p.Controller, name, err)
			}
		}
	}
}
