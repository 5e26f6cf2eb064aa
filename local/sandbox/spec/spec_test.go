package spec

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/runtime"
)

func sandbox() Sandbox {
	return Sandbox{Group: "/rockpool/a", Slot: 3, Resources: Resources{CPUMHz: 2000, MemoryMiB: 256, Processes: 128, WorkspaceMiB: 64}, Root: Root{Path: "/root"}}
}

func TestPathsAreTheRuntimes(t *testing.T) {
	if home != runtime.Home || Workspace != runtime.Workspace {
		t.Errorf("got %s and %s, want %s and %s", home, Workspace, runtime.Home, runtime.Workspace)
	}
}

func TestSpecLimits(t *testing.T) {
	for _, c := range []struct {
		mhz, core int
		swap      bool
		quota     int64
		shares    uint64
	}{
		{2000, 2000, true, 100_000, 2000},
		{1300, 2600, false, 50_000, 1300},
		{10, 4000, true, 1000, 10},
		{8000, 2000, true, 400_000, 8000},
		{1 << 20, 2000, true, 52_428_800, 1 << 18},
	} {
		s := sandbox()
		s.Resources.CPUMHz = c.mhz
		divided := New(s, Machine{CoreMHz: c.core, Swap: c.swap, Launchers: 4})
		want := cgroup.Limits{Memory: (256 + 24) << 20, Processes: 128 + 4 + AgentRoomThreads, CPUQuota: c.quota, CPUPeriod: 100_000}
		if got, err := Limits(divided, nil); err != nil || got != want {
			t.Errorf("%+v, divided: %+v, %v", c, got, err)
		}
		apart := Machine{CoreMHz: c.core, Swap: c.swap, SeparateCPU: true}
		want = cgroup.Limits{Memory: (256 + 24) << 20, Processes: 128 + AgentRoomThreads, CPUQuota: c.quota + 20_000, CPUPeriod: 100_000}
		if got, err := Limits(New(s, apart), nil); err != nil || got != want {
			t.Errorf("%+v, divided, with processor time apart: %+v, %v", c, got, err)
		}
		if got := Commands(s.Resources, apart); got.CPUQuota != c.quota {
			t.Errorf("%+v, commands then: %+v", c, got)
		}
		spec := New(s, Machine{CoreMHz: c.core, Swap: c.swap, Undivided: errors.New("no")})
		want = cgroup.Limits{Memory: 256 << 20, Processes: 128 + agentThreads, CPUQuota: c.quota, CPUPeriod: 100_000}
		if got, err := Limits(spec, nil); err != nil || got != want {
			t.Errorf("%+v: %+v, %v", c, got, err)
		}
		r := spec.Linux.Resources
		if *r.CPU.Shares != c.shares || (r.Memory.Swap != nil) != c.swap {
			t.Errorf("%+v: shares %d, swap %v", c, *r.CPU.Shares, r.Memory.Swap)
		}
		if id := spec.Linux.UIDMappings[0]; id.HostID != FirstUID+3*UIDs || id.Size != UIDs {
			t.Errorf("users %+v", id)
		}
	}
	if last := uint64(ImageOwners) + UIDs; last > 1<<32-1 {
		t.Errorf("the last range ends at %d", last)
	}
}

func TestBuildRoot(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "root")
	m := Inspect(nil)
	if m.CoreMHz < 1 || !slices.Contains(m.Binds, "/usr") {
		t.Errorf("%+v", m)
	}
	if err := os.MkdirAll(filepath.Join(dir, "old"), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second time replaces the first
		if err := BuildRoot(dir, m, []byte("agent")); err != nil {
			t.Fatal(err)
		}
	}
	for _, mount := range mounts(sandbox(), m) {
		switch filepath.Dir(mount.Destination) {
		case "/dev", "/proc": // on the file system there
		default:
			if _, err := os.Stat(filepath.Join(dir, mount.Destination)); err != nil {
				t.Errorf("there is nothing to mount %s on: %v", mount.Destination, err)
			}
		}
	}
	for at, want := range map[string]string{"/bin": "usr/bin", "/tmp": "", "/etc/shadow": "", "/old": ""} {
		info, err := os.Lstat("/bin")
		if at == "/bin" && (err != nil || info.Mode()&os.ModeSymlink == 0) {
			continue // a machine without a merged /usr
		}
		if to, _ := os.Readlink(filepath.Join(dir, at)); to != want {
			t.Errorf("%s is a link to %q, want %q", at, to, want)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, AgentPath)); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the agent: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "old")); err == nil {
		t.Error("an earlier file is still there")
	}
}

func TestRootThatIsMounted(t *testing.T) {
	if err := BuildRoot("/proc", Machine{}, nil); err == nil || !strings.Contains(err.Error(), "unmount") {
		t.Errorf("replaced a mounted directory: %v", err)
	}
}

func TestProgramsOfTheImageHost(t *testing.T) {
	if found := (Machine{Binds: []string{"/usr", "/bin"}}).Programs([]string{"nonesuch", "sh"}); !slices.Equal(found, []string{"sh"}) {
		t.Errorf("found: %q", found)
	}
	dir, outside := t.TempDir(), t.TempDir()
	for path, mode := range map[string]os.FileMode{dir + "/runs": 0o755, dir + "/own": 0o700, outside + "/out": 0o755} {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"link": dir + "/runs", "away": outside + "/out", "broken": dir + "/nonesuch"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	m := Machine{Binds: []string{dir}}
	for name, want := range map[string]bool{"runs": true, "own": false, "link": true, "away": false, "broken": false, ".": false} {
		if got := m.runs(filepath.Join(dir, name)); got != want {
			t.Errorf("%s runs inside: %v, want %v", name, got, want)
		}
	}
}
