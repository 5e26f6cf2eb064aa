package main

import (
	"cmp"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
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

// TestE2ETimeLimitEndsTheWholeTree counts what the program still does, which a
// busy machine holds up as it does the agent.
func TestE2ETimeLimitEndsTheWholeTree(t *testing.T) {
	b := e2e(t)
	runner := b.claim(t, "shell")
	// Children in sessions of their own, one that was orphaned, one that ignores TERM.
	script := `setsid sleep 77 & (setsid sh -c 'trap "" TERM; sleep 77; sleep 77' &) ; while echo on; do sleep 0.1; done`
	got := b.run(t, object{"runnerId": runner, "shell": script, "timeLimit": 1})
	if n := strings.Count(got.stream("STDOUT"), "on\n"); got.Outcome != "TIME_LIMIT" || got.Usage.WallMs < 1000 || n < 1 || n > 20 {
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

// TestE2EForkBomb runs one only after it has read the limit that holds it.
func TestE2EForkBomb(t *testing.T) {
	b := e2e(t)
	b.put(t, object{"id": "bomb", "poolSize": 1, "resources": object{"processes": 40}})
	runner := b.claim(t, "bomb")
	if limit := b.limitRead(t, "pids", runner); limit > 64 {
		t.Fatalf("the limit of processes is %d: no bomb without one", limit)
	}
	got := b.run(t, object{"runnerId": runner, "shell": "bomb() { bomb | bomb & }; bomb; sleep 1000", "timeLimit": 60})
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
		if got := b.run(t, object{"runnerId": runner, "shell": script, "timeLimit": 20}); got.Outcome != outcome {
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

// TestE2EFiveHundredAtOnce: what a runner has no room for is refused, and the
// runner lives.
func TestE2EFiveHundredAtOnce(t *testing.T) {
	b := e2e(t)
	runner := b.claim(t, "shell")
	if limit := b.limitRead(t, "pids", runner); limit > 256 {
		t.Fatalf("the limit of processes is %d", limit)
	}
	var all sync.WaitGroup
	for range 500 {
		all.Go(func() {
			if got := b.run(t, object{"runnerId": runner, "command": []string{"true"}}); got.Outcome != "EXITED" && got.Outcome != "FAILED" {
				t.Errorf("%s: %s", got.Outcome, got.Message)
			}
		})
	}
	all.Wait()
	if got := b.shell(t, runner, "echo usable"); got.stream("STDOUT") != "usable\n" {
		t.Errorf("afterwards: %+v", got)
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
		members, err := os.ReadFile(filepath.Join(strings.TrimSuffix(filepath.Dir(path), "/run"), "cgroup.procs"))
		if err != nil || strings.TrimSpace(string(members)) == "" {
			t.Fatalf("nobody is in %s: %v", filepath.Dir(path), err)
		}
		return limit
	}
	t.Fatalf("runner %s has no %s limit that can be read", runner, controller)
	return 0
}
