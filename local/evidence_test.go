package local

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/runtime"
)

// TestEvidenceStaysWhileGroupsGo: what commands' groups counted is known after
// they were removed, while the runner's own is still there. The files are those of
// a kernel with the version, so both run on every machine.
func TestEvidenceStaysWhileGroupsGo(t *testing.T) {
	for name, version := range map[string]struct {
		v2     bool
		file   string
		groups []string
		kills  string // of the runner's own group
	}{
		"version 1": {false, "memory.oom_control", []string{"", "run/x0", "run/x1", "run/rest"}, "oom_kill 0\n"},
		// It counts what was killed in the groups below, too.
		"version 2": {true, "memory.events", []string{"", "agent", "run", "run/x0", "run/x1", "run/rest"}, "oom_kill 2\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, at := range version.groups {
				oom, refused := "oom_kill 0\n", "max 0\n"
				switch at {
				case "":
					oom = version.kills
				case "run/x0":
					oom, refused = "oom_kill 2\n", "max 3\n"
				}
				if err := os.MkdirAll(filepath.Join(dir, at), 0o700); err != nil {
					t.Fatal(err)
				}
				for file, text := range map[string]string{version.file: oom, "pids.events": refused} {
					if err := os.WriteFile(filepath.Join(dir, at, file), []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			evidenceStays(t, cgroup.Group{Dir: dir, V2: version.v2})
		})
	}
}

func evidenceStays(t *testing.T, group cgroup.Group) {
	groups := cgroup.Groups{Memory: group, Processes: group, CPU: group}
	c, e := &Cluster{}, &entry{counter: cgroup.NewCounter(groups)}
	want := runtime.Evidence{OOMKills: 2, ProcessLimitHits: 3}
	if got, err := c.count(e); err != nil || got != want {
		t.Fatalf("%+v, %v", got, err)
	}
	if err := os.RemoveAll(filepath.Join(group.Dir, cgroup.Commands)); err != nil {
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
