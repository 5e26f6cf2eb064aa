package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/test/executable"
	"github.com/rockpool/rockpool/test/need"
)

// Each controller is tested in its own tree.
func TestOnlyTheBrokenControllerIsReported(t *testing.T) {
	h := &Host{config: Config{CgroupParent: "rockpool"}}
	mounts := t.TempDir()
	for _, name := range []string{"memory", "pids", "cpu"} {
		mount := filepath.Join(mounts, name)
		if name != "pids" { // else its tree is missing
			if err := os.Mkdir(mount, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		h.Trees = append(h.Trees, cgroup.Hierarchy{Mount: mount, Root: "/", Controllers: []string{name}})
	}
	for _, name := range []string{"memory", "pids", "cpu"} {
		if err := h.tryController(name); (err != nil) != (name == "pids") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Some distributions start the kernel without the controller of memory.
func TestMissingMemoryControllerSaysHowToGetIt(t *testing.T) {
	need.Sandboxes(t)
	h := &Host{config: Config{CgroupParent: "rockpool"}, Direct: &launch.Direct{}}
	missing := fmt.Sprint(h.Missing())
	if !strings.Contains(missing, "no cgroup controller memory; add cgroup_enable=memory") {
		t.Errorf("%s, want what brings the controller of memory", missing)
	}
}

// If a server is killed while it tests a controller, the next test removes the cgroup that it left.
func TestCheckRemovesTheGroupOfAKilledServer(t *testing.T) {
	mount := t.TempDir()
	h := &Host{
		config: Config{CgroupParent: "rockpool"},
		Trees:  cgroup.Hierarchies{{Mount: mount, Root: "/", Controllers: []string{"memory"}}},
	}
	tree, _ := h.Trees.Controller("memory")
	group := filepath.Join("/rockpool", checkGroup)
	if err := tree.Prepare(group); err != nil {
		t.Fatal(err)
	}
	if err := h.tryController("memory"); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(mount, group)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the group is still there: got %v, want %v", err, fs.ErrNotExist)
	}
}

// TestChrootsAreFound runs this test's program in a chroot that isn't a mount point, and in one that
// is.
func TestChrootsAreFound(t *testing.T) {
	need.Sandboxes(t)
	if os.Getenv("IN_CHROOT") != "" {
		if !Chrooted() {
			t.Error("not found")
		}
		return
	}
	if Chrooted() {
		t.Error("this machine's root")
	}
	dir := t.TempDir()
	program, err := os.ReadFile("/proc/self/exe")
	if err := errors.Join(err, os.Mkdir(filepath.Join(dir, "proc"), 0o755), os.Mkdir(filepath.Join(dir, "tmp"), 0o755)); err != nil {
		t.Fatal(err)
	}
	executable.Write(t, filepath.Join(dir, "test"), program)
	for _, mount := range []string{"true", `mount --bind "$0" "$0"`} {
		// The first process of the namespaces stays outside of the chroot.
		cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "sh", "-c", mount+` && mount -t proc proc "$0/proc" &&
			for part in usr lib lib64; do [ ! -e /$part ] || { mkdir -p "$0/$part" && mount --bind /$part "$0/$part"; } || exit; done && (IN_CHROOT=1 ROCKPOOL_TEST=sandbox ROCKPOOL_ARTIFACTS= exec chroot "$0" /test -test.run '^TestChrootsAreFound$')`, dir)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Errorf("%s: %v, %s", mount, err, out)
		}
	}
}
