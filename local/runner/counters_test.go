package runner

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/runtime"
)

// TestCountersDoNotDecreaseDuringRemoval: counts of commands' cgroups stay known after those were
// removed, while the runner's own cgroup still exists. The files imitate a kernel of each version,
// so both run on every machine.
func TestCountersDoNotDecreaseDuringRemoval(t *testing.T) {
	for name, version := range map[string]struct {
		v2     bool
		file   string
		used   string
		groups []string
		kills  string // of the runner's own cgroup
	}{
		"version 1": {false, "memory.oom_control", "cpuacct.usage", []string{"", "run/x0", "run/x1", "run/rest"}, "oom_kill 0\n"},
		// It includes kills in the cgroups below.
		"version 2": {true, "memory.events", "cpu.stat", []string{"", "agent", "run", "run/x0", "run/x1", "run/rest"}, "oom_kill 2\n"},
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
				used := "2000000000\n"
				if version.v2 {
					used = "usage_usec 2000000\nuser_usec 1\n"
				}
				for file, text := range map[string]string{version.file: oom, "pids.events": refused, version.used: used} {
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
	if !group.V2 {
		groups.Account = group
	}
	c := &Counters{log: zap.NewNop()}
	c.Open(groups, 0)
	want := runtime.Evidence{OOMKills: 2, ProcessLimitHits: 3, CPU: 2 * time.Second}
	if got, err := c.Count(); err != nil || got != want {
		t.Fatalf("%+v, %v", got, err)
	}
	if err := os.RemoveAll(filepath.Join(group.Dir, cgroup.Commands)); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if got, err := c.Count(); err == nil || *c.last != want {
		t.Errorf("%+v, %+v: it was %+v", got, c.last, want)
	}
	c.counter = cgroup.NewCounter(groups) // it finds only the runner's own cgroup
	if got, err := c.Count(); err != nil || got != want || *c.last != want {
		t.Errorf("%+v, %+v, %v: it was %+v", got, c.last, err, want)
	}
}

// TestUnreadableCountersAreReported: while a file can't be read, earlier values aren't returned as
// present ones. Removed cgroups keep their values.
func TestUnreadableCountersAreReported(t *testing.T) {
	dir := t.TempDir()
	group := cgroup.Group{Dir: dir, V2: true}
	broken := filepath.Join(dir, "memory.events")
	if err := os.Mkdir(broken, 0o700); err != nil { // not even root can read a directory as a file
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pids.events"), []byte("max 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zapcore.ErrorLevel)
	c := &Counters{log: zap.New(core), ownKernel: true}
	if got, err := c.Latest(); !errors.Is(err, ErrNone) || c.Problem() != nil {
		t.Errorf("never made: %+v, %v, %+v", got, err, c.Problem())
	}
	groups := cgroup.Groups{Memory: group, Processes: group, CPU: group}
	c.Open(groups, 4)
	c.last = &runtime.Evidence{OOMKills: 2}
	for range 2 {
		if got, err := c.Latest(); err == nil || gone(err) || c.Problem() == nil || !strings.Contains(c.Problem().Message, broken) || logs.Len() != 1 {
			t.Errorf("unreadable: %+v, %v, %+v, logged %d", got, err, c.Problem(), logs.Len())
		}
	}
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(broken, []byte("oom_kill 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.counter = cgroup.NewCounter(groups) // the other one has the directory open
	want := runtime.Evidence{OOMKills: 5, ProcessLimitHits: 1, OwnKernel: true}
	got, err := c.Latest()
	if err != nil || got != want || c.Problem() != nil {
		t.Errorf("readable again: %+v, %v, %+v", got, err, c.Problem())
	}
	if !c.Killed(got) || !c.Survived(got) || c.Survived(got) || c.Killed(got) {
		t.Error("it isn't survived once")
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if got, err := c.Latest(); err != nil || got != want {
		t.Errorf("gone: %+v, %v", got, err)
	}
}
