package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
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
		t.Errorf("the group is still there: %v", err)
	}
}
