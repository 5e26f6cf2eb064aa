package isolation

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/wait"
)

func TestE2EOutputLimit(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	got := b.Run(t, object{"runnerId": runner, "command": []string{"yes"}, "limits": object{"outputBytes": 1 << 20}})
	if got.Outcome != "OUTPUT_LIMIT" || got.Usage.OutputBytes != 1<<20 {
		t.Errorf("%s after %d bytes", got.Outcome, got.Usage.OutputBytes)
	}
	if got := b.Shell(t, runner, "echo usable"); got.Stream("STDOUT") != "usable\n" {
		t.Errorf("afterwards: %+v", got)
	}
}

// TestE2ETimeLimitEndsTheWholeTree: only its time limit ends this program, and none of its
// processes outlives it.
func TestE2ETimeLimitEndsTheWholeTree(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	// Children in sessions of their own, an orphan, and one that ignores TERM.
	script := `setsid sleep 77 & (setsid sh -c 'trap "" TERM; sleep 77; sleep 77' &) ; while echo on; do sleep 0.1; done`
	got := b.Run(t, object{"runnerId": runner, "shell": script, "timeLimit": 1})
	if n := strings.Count(got.Stream("STDOUT"), "on\n"); got.Outcome != "TIME_LIMIT" || got.Usage.WallMs < 1000 || n < 1 {
		t.Errorf("%s after %d ms and %d lines", got.Outcome, got.Usage.WallMs, n)
	}
	// Finds processes that are left.
	left := b.Shell(t, runner, `for p in /proc/[0-9]*; do tr '\0' ' ' < $p/cmdline 2>/dev/null | grep 'sleep 7[7]'; done; echo usable`)
	if left.Stream("STDOUT") != "usable\n" {
		t.Errorf("left: %q", left.Stream("STDOUT"))
	}
}

func TestE2EMemoryLimit(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "python")
	b.LimitRead(t, "memory", runner)
	got := b.Run(t, object{"runnerId": runner, "command": []string{"python3", "-c", "x = []\nwhile True: x.append(bytearray(1 << 20))"}})
	if got.Outcome != "MEMORY_LIMIT" {
		t.Errorf("%s %v %s: %s\n%s", got.Outcome, got.ExitCode, got.Signal, got.Message, got.Stream("STDERR"))
	}
	if got := b.Shell(t, runner, "echo usable"); got.Stream("STDOUT") != "usable\n" {
		t.Errorf("the runner didn't live: %+v", got)
	}
}

// TestE2EAgentKilledForMemoryIsReported: if the kernel kills an agent for memory, its executions
// report that. If somebody else kills the agent, they don't, although the runner's memory was full
// before.
func TestE2EAgentKilledForMemoryIsReported(t *testing.T) {
	b := bed.Open(t)
	full, killed := b.Claim(t, "python"), b.Claim(t, "python")
	b.LimitRead(t, "memory", killed)
	if got := b.Run(t, object{"runnerId": killed, "command": []string{"python3", "-c", "x = bytearray(1 << 30)"}}); got.Outcome != "MEMORY_LIMIT" {
		t.Errorf("a command of 1 GiB: %s: %s", got.Outcome, got.Message)
	}
	wait.For(t, "its agent has shown that it lives, for which it has 2 s at each end of a command", func() bool {
		b.Shell(t, killed, "exit 1")
		return strings.Contains(bed.SharedServer.Log.String(), "agent survived\t{\"runner\": \""+killed)
	})
	for _, end := range []struct {
		runner, reason, event string
		of                    func(t *testing.T, runner string)
	}{
		{full, "OUT_OF_MEMORY", "OUT_OF_MEMORY", b.FillMemory},
		{killed, "AGENT_DIED", "GONE", func(t *testing.T, runner string) {
			_, agent := b.AgentOf(t, runner)
			if err := syscall.Kill(agent, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		running := b.Start(t, object{"runnerId": end.runner, "command": []string{"sleep", "60"}})
		wait.For(t, "an execution begins", func() bool {
			var out struct{ Execution struct{ State string } }
			b.Call(t, `query($id: ID!) { execution(id: $id) { state } }`, object{"id": running}, &out)
			return out.Execution.State == "RUNNING"
		})
		end.of(t, end.runner)
		if got := b.Await(t, running); got.Outcome != "RUNNER_GONE" || string(got.GoneReason) != end.reason {
			t.Errorf("%s: the execution is %s %s: %s", end.reason, got.Outcome, got.GoneReason, got.Message)
		}
		wait.For(t, "the runner's end is reported: "+end.event, func() bool {
			var out struct {
				Cluster struct{ TaskEvents []struct{ Kind string } }
			}
			b.Call(t, `query($id: ID!) { cluster { taskEvents(runnerId: $id) { kind } } }`, object{"id": end.runner}, &out)
			return slices.ContainsFunc(out.Cluster.TaskEvents, func(e struct{ Kind string }) bool { return e.Kind == end.event })
		})
	}
}

// TestE2EForkBomb runs a fork bomb, after it has read back the limit that contains it.
func TestE2EForkBomb(t *testing.T) {
	b := bed.Open(t)
	b.Put(t, object{"id": "bomb", "poolSize": 1, "resources": object{"processes": 40}})
	runner := b.Claim(t, "bomb")
	if limit := b.LimitRead(t, "pids", runner); limit > 64 {
		t.Fatalf("the limit of processes is %d: no bomb without one", limit)
	}
	// It continues at refused forks, so its time limit would end it much later.
	const forks = "import os\nwhile True:\n\ttry: os.fork()\n\texcept OSError: pass"
	got := b.Run(t, object{"runnerId": runner, "command": []string{"python3", "-c", forks}, "timeLimit": 110})
	if got.Outcome != "PROCESS_LIMIT" {
		t.Errorf("%s: %s", got.Outcome, got.Message)
	}
	// Each shell of this bomb ends at a refused fork. How many forks are refused before the last one ends depends
	// on the machine's speed: if they are many, the bomb is ended before its time limit. Both outcomes name the limit.
	got = b.Run(t, object{"runnerId": runner, "shell": "bomb() { bomb | bomb & }; bomb; sleep 1000", "timeLimit": 3})
	if got.Outcome != "TIME_LIMIT" && got.Outcome != "PROCESS_LIMIT" || !strings.Contains(got.Message, "40") {
		t.Errorf("got %s %q, want TIME_LIMIT or PROCESS_LIMIT that names the limit of 40", got.Outcome, got.Message)
	}
	if got := b.Shell(t, runner, "echo usable"); got.Stream("STDOUT") != "usable\n" {
		t.Errorf("the runner didn't live: %+v", got)
	}
}

// TestE2ELimitsSpareTheNeighbour: of two concurrent executions, only the one that exceeds a limit
// reports it. The other one ends normally.
func TestE2ELimitsSpareTheNeighbour(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "python")
	if b.LimitRead(t, "pids", runner) > 256 || b.LimitRead(t, "memory", runner) > 1<<30 {
		t.Fatal("the limits are too high")
	}
	const wait = "import os, time\nwhile not os.path.exists('/workspace/go'): time.sleep(0.02)"
	neighbour := b.Start(t, object{"runnerId": runner, "command": []string{"python3", "-c", wait}})
	for script, outcome := range map[string]string{
		"python3 -c 'x = []\nwhile True: x.append(bytearray(1 << 20))'; exit 7":                                 "MEMORY_LIMIT",
		"exec python3 -c 'import os, time\nwhile True:\n  if os.fork() == 0:\n    time.sleep(60); os._exit(0)'": "PROCESS_LIMIT",
		"exit 8": "EXITED",
	} {
		if got := b.Run(t, object{"runnerId": runner, "shell": script, "timeLimit": 110}); string(got.Outcome) != outcome {
			t.Errorf("%s %v: %s\n%s", got.Outcome, got.ExitCode, got.Message, script)
		}
	}
	if got := b.Shell(t, runner, "mkdir go"); got.Outcome != "EXITED" {
		t.Errorf("%+v", got)
	}
	got := b.Await(t, neighbour)
	if got.Outcome != "EXITED" || *got.ExitCode != 0 {
		t.Errorf("the neighbour: %s: %s", got.Outcome, got.Message)
	}
	if u := got.Usage; u.PeakProcesses == nil || *u.PeakProcesses != 1 || u.BytesRead == nil || u.BytesWritten == nil || *u.BytesWritten != 0 {
		t.Errorf("it used %+v", u)
	}
}
