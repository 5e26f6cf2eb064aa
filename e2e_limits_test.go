package main

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/test/wait"
)

func TestE2EOutputLimit(t *testing.T) {
	b := e2e(t)
	runner := b.claim(t, "shell")
	got := b.run(t, object{"runnerId": runner, "command": []string{"yes"}, "limits": object{"outputBytes": 1 << 20}})
	if got.Outcome != "OUTPUT_LIMIT" || got.Usage.OutputBytes != 1<<20 {
		t.Errorf("%s after %d bytes", got.Outcome, got.Usage.OutputBytes)
	}
	if got := b.shell(t, runner, "echo usable"); got.stream("STDOUT") != "usable\n" {
		t.Errorf("afterwards: %+v", got)
	}
}

// TestE2ETimeLimitEndsTheWholeTree: nothing but its limit ends this program, and
// none of its processes outlives it.
func TestE2ETimeLimitEndsTheWholeTree(t *testing.T) {
	b := e2e(t)
	runner := b.claim(t, "shell")
	// Children in sessions of their own, one that was orphaned, one that ignores TERM.
	script := `setsid sleep 77 & (setsid sh -c 'trap "" TERM; sleep 77; sleep 77' &) ; while echo on; do sleep 0.1; done`
	got := b.run(t, object{"runnerId": runner, "shell": script, "timeLimit": 1})
	if n := strings.Count(got.stream("STDOUT"), "on\n"); got.Outcome != "TIME_LIMIT" || got.Usage.WallMs < 1000 || n < 1 {
		t.Errorf("%s after %d ms and %d lines", got.Outcome, got.Usage.WallMs, n)
	}
	// pgrep sees what is left of them.
	left := b.shell(t, runner, `for p in /proc/[0-9]*; do tr '\0' ' ' < $p/cmdline 2>/dev/null | grep 'sleep 7[7]'; done; echo usable`)
	if left.stream("STDOUT") != "usable\n" {
		t.Errorf("left: %q", left.stream("STDOUT"))
	}
}

func TestE2EMemoryLimit(t *testing.T) {
	b := e2e(t)
	runner := b.claim(t, "python")
	b.limitRead(t, "memory", runner)
	got := b.run(t, object{"runnerId": runner, "command": []string{"python3", "-c", "x = []\nwhile True: x.append(bytearray(1 << 20))"}})
	if got.Outcome != "MEMORY_LIMIT" {
		t.Errorf("%s %v %s: %s\n%s", got.Outcome, got.ExitCode, got.Signal, got.Message, got.stream("STDERR"))
	}
	if got := b.shell(t, runner, "echo usable"); got.stream("STDOUT") != "usable\n" {
		t.Errorf("the runner didn't live: %+v", got)
	}
}

// TestE2EAgentsMemory: what ends with an agent that the kernel kills for memory is
// told so, and what ends with one that somebody kills isn't, though its runner's
// memory was full before.
func TestE2EAgentsMemory(t *testing.T) {
	b := e2e(t)
	full, killed := b.claim(t, "python"), b.claim(t, "python")
	b.limitRead(t, "memory", killed)
	if got := b.run(t, object{"runnerId": killed, "command": []string{"python3", "-c", "x = bytearray(1 << 30)"}}); got.Outcome != "MEMORY_LIMIT" {
		t.Errorf("a command of 1 GiB: %s: %s", got.Outcome, got.Message)
	}
	wait.For(t, "its agent has shown that it lives, for which it has 2 s at each end of a command", func() bool {
		b.shell(t, killed, "exit 1")
		return strings.Contains(shared.log.String(), "outlived what the kernel killed for memory\t{\"runner\": \""+killed)
	})
	for _, end := range []struct {
		runner, reason, event string
		of                    func(t *testing.T, runner string)
	}{
		{full, "OUT_OF_MEMORY", "OUT_OF_MEMORY", b.fillMemory},
		{killed, "AGENT_DIED", "GONE", func(t *testing.T, runner string) {
			_, agent := b.agentOf(t, runner)
			if err := syscall.Kill(agent, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		running := b.start(t, object{"runnerId": end.runner, "command": []string{"sleep", "60"}})
		wait.For(t, "an execution begins", func() bool {
			var out struct{ Execution struct{ State string } }
			b.call(t, `query($id: ID!) { execution(id: $id) { state } }`, object{"id": running}, &out)
			return out.Execution.State == "RUNNING"
		})
		end.of(t, end.runner)
		if got := b.await(t, running); got.Outcome != "RUNNER_GONE" || got.GoneReason != end.reason {
			t.Errorf("%s: the execution is %s %s: %s", end.reason, got.Outcome, got.GoneReason, got.Message)
		}
		wait.For(t, "the runner's end is reported: "+end.event, func() bool {
			var out struct {
				Cluster struct{ TaskEvents []struct{ Kind string } }
			}
			b.call(t, `query($id: ID!) { cluster { taskEvents(runnerId: $id) { kind } } }`, object{"id": end.runner}, &out)
			return slices.ContainsFunc(out.Cluster.TaskEvents, func(e struct{ Kind string }) bool { return e.Kind == end.event })
		})
	}
}

// agentOf returns a runner's agent, and the group of all its memory.
func (b bed) agentOf(t *testing.T, runner string) (group string, pid int) {
	t.Helper()
	groups := cmp.Or(b.groups, e2eCgroups)
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

// fillMemory has a process of the machine fill a runner's memory with a file, so
// that the kernel kills the agent first. It isn't begun before the limit that ends
// it was read.
func (b bed) fillMemory(t *testing.T, runner string) {
	t.Helper()
	group, agent := b.agentOf(t, runner)
	b.limitRead(t, "memory", runner)
	if text, err := os.ReadFile(filepath.Join(group, "memory.limit_in_bytes")); err == nil { // on version 2 it is the one above
		if limit, err := strconv.Atoi(strings.TrimSpace(string(text))); err != nil || limit > 1<<30 {
			t.Fatalf("the memory of all of it is limited to %s (%v)", text, err)
		}
	}
	script := `echo 1000 >/proc/$1/oom_score_adj && echo $$ >"$2/cgroup.procs" && grep -q "$3" /proc/self/cgroup && exec python3 -c '
import os
file, mib = os.memfd_create("full"), bytes(1 << 20)
for i in range(1024): os.write(file, mib)'`
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", script, "sh", strconv.Itoa(agent), group, runner).CombinedOutput(); err == nil || len(out) > 0 {
		t.Fatalf("its memory isn't limited: %v: %s", err, out)
	}
}

// TestE2EForkBomb runs one only after it has read the limit that holds it.
func TestE2EForkBomb(t *testing.T) {
	b := e2e(t)
	b.put(t, object{"id": "bomb", "poolSize": 1, "resources": object{"processes": 40}})
	runner := b.claim(t, "bomb")
	if limit := b.limitRead(t, "pids", runner); limit > 64 {
		t.Fatalf("the limit of processes is %d: no bomb without one", limit)
	}
	got := b.run(t, object{"runnerId": runner, "shell": "bomb() { bomb | bomb & }; bomb; sleep 1000", "timeLimit": 110})
	if got.Outcome != "PROCESS_LIMIT" { // its time limit would end it later
		t.Errorf("%s: %s", got.Outcome, got.Message)
	}
	if got := b.shell(t, runner, "echo usable"); got.stream("STDOUT") != "usable\n" {
		t.Errorf("the runner didn't live: %+v", got)
	}
}

// TestE2ELimitsBesideANeighbour: of two that run at once, the one is named that
// overstepped, and the other one ends well.
func TestE2ELimitsBesideANeighbour(t *testing.T) {
	b := e2e(t)
	runner := b.claim(t, "python")
	if b.limitRead(t, "pids", runner) > 256 || b.limitRead(t, "memory", runner) > 1<<30 {
		t.Fatal("the limits are too high")
	}
	const wait = "import os, time\nwhile not os.path.exists('/workspace/go'): time.sleep(0.02)"
	neighbour := b.start(t, object{"runnerId": runner, "command": []string{"python3", "-c", wait}})
	for script, outcome := range map[string]string{
		"python3 -c 'x = []\nwhile True: x.append(bytearray(1 << 20))'; exit 7":                                 "MEMORY_LIMIT",
		"exec python3 -c 'import os, time\nwhile True:\n  if os.fork() == 0:\n    time.sleep(60); os._exit(0)'": "PROCESS_LIMIT",
		"exit 8": "EXITED",
	} {
		if got := b.run(t, object{"runnerId": runner, "shell": script, "timeLimit": 110}); got.Outcome != outcome {
			t.Errorf("%s %v: %s\n%s", got.Outcome, got.ExitCode, got.Message, script)
		}
	}
	if got := b.shell(t, runner, "mkdir go"); got.Outcome != "EXITED" {
		t.Errorf("%+v", got)
	}
	got := b.await(t, neighbour)
	if got.Outcome != "EXITED" || *got.ExitCode != 0 {
		t.Errorf("the neighbour: %s: %s", got.Outcome, got.Message)
	}
	if u := got.Usage; u.PeakProcesses == nil || *u.PeakProcesses != 1 || u.BytesRead == nil || u.BytesWritten == nil || *u.BytesWritten != 0 {
		t.Errorf("it used %+v", u)
	}
}

// limitRead returns the limit that the kernel has for the commands of a runner,
// or for the runner, whose agent must be in its group, and stops the test where there is none.
func (b bed) limitRead(t *testing.T, controller, runner string) int64 {
	t.Helper()
	groups := cmp.Or(b.groups, e2eCgroups)
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
			t.Fatalf("%s is %q: the limit didn't take", path, text)
		}
		for _, file := range groupFiles(groups, runner) {
			if members, err := os.ReadFile(file); err == nil && len(members) > 0 && strings.HasPrefix(file, strings.TrimSuffix(filepath.Dir(path), "/run")) {
				return limit
			}
		}
		t.Fatalf("nobody is in %s", filepath.Dir(path))
	}
	t.Fatalf("runner %s has no %s limit that can be read", runner, controller)
	return 0
}
