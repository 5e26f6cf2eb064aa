package local

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/runtime"
)

// TestEvidenceStaysWhileGroupsGo: what commands' groups counted is known after
// they were removed, while the runner's own is still there.
func TestEvidenceStaysWhileGroupsGo(t *testing.T) {
	dir := t.TempDir()
	for _, at := range []string{"", "run/x0", "run/x1", "run/rest"} {
		oom, refused := "oom_kill 0\n", "max 0\n"
		if at == "run/x0" {
			oom, refused = "oom_kill 2\n", "max 3\n"
		}
		if err := os.MkdirAll(filepath.Join(dir, at), 0o700); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"memory.oom_control": oom, "pids.events": refused} {
			if err := os.WriteFile(filepath.Join(dir, at, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	group := cgroup.Group{Dir: dir}
	groups := cgroup.Groups{Memory: group, Processes: group, CPU: group}
	c, e := &Cluster{}, &entry{counter: cgroup.NewCounter(groups)}
	want := runtime.Evidence{OOMKills: 2, ProcessLimitHits: 3}
	if got, err := c.count(e); err != nil || got != want {
		t.Fatalf("%+v, %v", got, err)
	}
	if err := os.RemoveAll(filepath.Join(dir, cgroup.Commands)); err != nil {
		t.Fatal(err)
	}
	e.counter.Close()
	if got, err := c.count(e); err == nil || *e.evidence != want {
		t.Errorf("%+v, %+v: it was %+v", got, e.evidence, want)
	}
	e.counter = cgroup.NewCounter(groups) // which finds the runner's own only
	if got, err := c.count(e); err != nil || got != want || *e.evidence != want {
		t.Errorf("%+v, %+v, %v: it was %+v", got, e.evidence, err, want)
	}
}
