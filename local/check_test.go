package local

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
)

// TestBrokenControllerIsReportedAlone: each controller is tried in its own tree.
func TestBrokenControllerIsReportedAlone(t *testing.T) {
	c := &Cluster{config: Config{CgroupParent: "rockpool"}}
	mounts := t.TempDir()
	for _, name := range []string{"memory", "pids", "cpu"} {
		mount := filepath.Join(mounts, name)
		if name != "pids" { // else its tree isn't there
			if err := os.Mkdir(mount, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		c.trees = append(c.trees, cgroup.Hierarchy{Mount: mount, Root: "/", Controllers: []string{name}})
	}
	for _, name := range []string{"memory", "pids", "cpu"} {
		if err := c.tryController(name); (err != nil) != (name == "pids") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
