package bed

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/test/wait"
)

// Seen is a runner as the API shows it.
type Seen struct {
	ID, EnvironmentID, State, GoneReason string
	Claim                                *struct {
		ClaimedAt, ExpiresAt time.Time
		Epoch                int
	}
}

// RunnersOf returns an environment's runners by id.
func (b Bed) RunnersOf(t testing.TB, environment string) map[string]Seen {
	t.Helper()
	var out struct {
		Runners struct{ Edges []struct{ Node Seen } }
	}
	b.Call(t, `query($id: ID) { runners(environmentId: $id, first: 1000) { edges { node { id environmentId state goneReason claim { claimedAt expiresAt epoch } } } } }`,
		object{"id": environment}, &out)
	all := map[string]Seen{}
	for _, e := range out.Runners.Edges {
		all[e.Node.ID] = e.Node
	}
	return all
}

// Full waits until an environment has exactly this many idle runners, in addition to claimed ones.
func (b Bed) Full(t testing.TB, environment string, idle int) map[string]Seen {
	t.Helper()
	var all map[string]Seen
	wait.For(t, fmt.Sprintf("%s has %d idle runners", environment, idle), func() bool {
		all = b.RunnersOf(t, environment)
		n := 0
		for _, r := range all {
			switch r.State {
			case "IDLE":
				n++
			case "CLAIMED":
			default:
				return false
			}
		}
		return n == idle
	})
	return all
}

// KillAgent kills a runner's first process.
func KillAgent(t testing.TB, cgroups, runner string) {
	t.Helper()
	for _, file := range groupFiles(cgroups, runner) {
		text, _ := os.ReadFile(file)
		var pid int
		if n, _ := fmt.Sscan(string(text), &pid); n == 1 && pid > 1 {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("runner %s has no process", runner)
}

// groupFiles returns the process lists of a runner's cgroups. On version 2 the agent has a cgroup
// of its own, and the runner's is empty.
func groupFiles(cgroups, runner string) (files []string) {
	for _, trees := range []string{"/sys/fs/cgroup/*/", "/sys/fs/cgroup/"} {
		for _, group := range []string{"", "/agent"} {
			found, _ := filepath.Glob(trees + cgroups + "/*" + runner + "*" + group + "/cgroup.procs")
			files = append(files, found...)
		}
	}
	return files
}

// AgentOf returns a runner's agent, and the cgroup that counts all its memory.
func (b Bed) AgentOf(t *testing.T, runner string) (group string, pid int) {
	t.Helper()
	groups := cmp.Or(b.Groups, Cgroups)
	group = filepath.Join("/sys/fs/cgroup/memory", groups, runner)
	if _, err := os.Stat(group); err != nil {
		group = filepath.Join("/sys/fs/cgroup", groups, runner, "agent")
	}
	text, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	if err != nil {
		t.Fatal(err)
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		t.Fatalf("%s: %v", group, err)
	}
	return group, pid
}

// FillMemory makes a process outside of the runner fill the runner's memory with a file, so that
// the kernel kills the agent first. It starts only after it has read the limit that stops it.
func (b Bed) FillMemory(t *testing.T, runner string) {
	t.Helper()
	group, agent := b.AgentOf(t, runner)
	b.LimitRead(t, "memory", runner)
	if text, err := os.ReadFile(filepath.Join(group, "memory.limit_in_bytes")); err == nil { // on version 2 the limit is in the parent
		if limit, err := strconv.Atoi(strings.TrimSpace(string(text))); err != nil || limit > 1<<30 {
			t.Fatalf("the runner's memory limit is %s (%v)", text, err)
		}
	}
	script := `echo 1000 >/proc/$1/oom_score_adj && echo $$ >"$2/cgroup.procs" && grep -q "$3" /proc/self/cgroup && exec python3 -c '
import os
file, mib = os.memfd_create("full"), bytes(1 << 20)
for i in range(1024): os.write(file, mib)'`
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", script, "sh", strconv.Itoa(agent), group, runner).CombinedOutput(); err == nil || len(out) > 0 {
		t.Fatalf("the process that fills memory wasn't stopped by the limit: %v: %s", err, out)
	}
}

// LimitRead returns the kernel's limit for a runner's commands, or for the runner. The agent must
// be in the runner's cgroup. If there is no limit, it ends the test.
func (b Bed) LimitRead(t *testing.T, controller, runner string) int64 {
	t.Helper()
	groups := cmp.Or(b.Groups, Cgroups)
	file := map[string][2]string{"pids": {"pids.max", "pids.max"}, "memory": {"memory.limit_in_bytes", "memory.max"}}[controller]
	for _, path := range []string{
		filepath.Join("/sys/fs/cgroup", controller, groups, runner, "run", file[0]), // of the commands
		filepath.Join("/sys/fs/cgroup", groups, runner, "run", file[1]),
		filepath.Join("/sys/fs/cgroup", controller, groups, runner, file[0]),
		filepath.Join("/sys/fs/cgroup", groups, runner, file[1]),
	} {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil || limit <= 0 || limit > 1<<32 {
			t.Fatalf("%s is %q, want a limit", path, text)
		}
		for _, file := range groupFiles(groups, runner) {
			if members, err := os.ReadFile(file); err == nil && len(members) > 0 && strings.HasPrefix(file, strings.TrimSuffix(filepath.Dir(path), "/run")) {
				return limit
			}
		}
		t.Fatalf("%s has no process", filepath.Dir(path))
	}
	t.Fatalf("runner %s has no readable %s limit", runner, controller)
	return 0
}
