package spec

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rockpool/rockpool/test/need"
)

func TestCPUMask(t *testing.T) {
	for _, test := range []struct {
		first, n int
		want     string
	}{{0, 1, "1"}, {0, 4, "f"}, {3, 1, "8"}, {0, 32, "ffffffff"}, {32, 1, "1,00000000"}, {0, 65, "1,ffffffff,ffffffff"}, {95, 1, "80000000,00000000,00000000"}} {
		if got := cpuMask(test.first, test.n); got != test.want {
			t.Errorf("%d processors from %d on: %s, want %s", test.n, test.first, got, test.want)
		}
	}
}

func TestViewsAreOfTheRunnersSize(t *testing.T) {
	all := len(processors())
	for _, test := range []struct{ mhz, cpus int }{{10, 1}, {1000, 1}, {1001, min(2, all)}, {1_000_000, all}} {
		if got := ViewOf(Resources{CPUMHz: test.mhz, MemoryMiB: 64}, Machine{CoreMHz: 1000}); got.CPUs != test.cpus {
			t.Errorf("%d MHz: %d processors, want %d", test.mhz, got.CPUs, test.cpus)
		}
	}
	const two = "processor\t: 0\nsiblings\t: 8\ncpu cores\t: 4\nflags\t: a b\n\nprocessor\t: 1\nsiblings\t: 8\n\n"
	if got, want := firstProcessors(two, 1), "processor\t: 0\nsiblings\t: 1\ncpu cores\t: 1\nflags\t: a b\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := firstProcessors(two, 2); strings.Count(got, "processor") != 2 {
		t.Errorf("got %q", got)
	}
	dir := t.TempDir()
	b := builder{dir: dir}
	View{Origin: "x", MemoryMiB: 64, CPUs: 1}.processors(&b)
	if b.err != nil {
		t.Fatal(b.err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, sysCPU, "cpu0/topology/core_siblings_list")); string(text) != "0\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// Without a cgroup namespace of its own, a sandbox would see the machine's cgroups.
func TestGroupsAreShownOnlyInANamespaceOfTheirOwn(t *testing.T) {
	s := &specs.Spec{Linux: &specs.Linux{}}
	if ShowGroups(s, ByRuntime); len(s.Mounts) != 0 {
		t.Errorf("%+v", s.Mounts)
	}
	s.Linux.Namespaces = []specs.LinuxNamespace{{Type: specs.CgroupNamespace}}
	ShowGroups(s, "", "cpu,cpuacct", ByRuntime)
	options := []string{"ro", "nosuid", "nodev", "noexec"}
	want := []specs.Mount{
		{Destination: "/sys/fs/cgroup", Type: "cgroup2", Source: "cgroup", Options: options},
		{Destination: "/sys/fs/cgroup/cpu,cpuacct", Type: "cgroup", Source: "cgroup", Options: append(options, "cpu,cpuacct")},
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: options},
	}
	if diff := cmp.Diff(want, s.Mounts); diff != "" {
		t.Error(diff)
	}
}

// A view stays while a process has it mounted, and for a while after it was made.
func TestUnusedViewsAreRemoved(t *testing.T) {
	need.Sandboxes(t)
	view := func(size int) View { return View{Origin: "test", MemoryMiB: size, CPUs: 1} }
	age := func(size int) {
		at := time.Now().Add(-2 * keptUnused)
		if err := os.Chtimes(view(size).dir(), at, at); err != nil {
			t.Fatal(err)
		}
	}
	const mounted, reused, unused, fresh, next = 1, 2, 3, 4, 5
	for _, size := range []int{mounted, reused, unused, fresh} {
		t.Cleanup(func() { _ = os.RemoveAll(view(size).dir()) })
		if err := view(size).Make(nil); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = os.RemoveAll(view(next).dir()) })
	sandbox := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", `mount --bind "$0/sys" /sys && echo && exec cat`, view(mounted).dir())
	stdin, err1 := sandbox.StdinPipe()
	stdout, err2 := sandbox.StdoutPipe()
	if err := errors.Join(err1, err2, sandbox.Start()); err != nil {
		t.Fatal(err)
	}
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	age(mounted)
	age(reused)
	age(unused)
	if err := errors.Join(view(reused).Make(nil), view(next).Make(nil)); err != nil {
		t.Fatal(err)
	}
	for size, kept := range map[int]bool{mounted: true, reused: true, unused: false, fresh: true, next: true} {
		if _, err := os.Stat(view(size).dir() + "/meminfo"); (err == nil) != kept {
			t.Errorf("view %d: %v, kept %t", size, err, kept)
		}
	}
	_ = stdin.Close()
	if err := sandbox.Wait(); err != nil {
		t.Fatal(err)
	}
	removeUnused()
	if _, err := os.Stat(view(mounted).dir()); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a view that was mounted stays after the end of the process")
	}
}
