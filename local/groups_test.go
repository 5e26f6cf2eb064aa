package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

// launch starts a shell script. The returned function follows it to its end.
func (b *bench) launch(id runtime.RunnerID, script string) (follow func() (string, agent.Exit)) {
	b.t.Helper()
	return b.launchLimited(id, script, nil)
}

// launchLimited is launch with limits.
func (b *bench) launchLimited(id runtime.RunnerID, script string, limits *agent.Limits) (follow func() (string, agent.Exit)) {
	b.t.Helper()
	conn, err := b.Dial(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	s, err := agent.StartExecution(b.t.Context(), conn, agent.Start{
		ID: string(runtime.NewExecutionID()), Argv: []string{"/bin/sh", "-c", script},
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + runtime.Home}, TimeLimit: wait.Limit, Limits: limits, // should it not end
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return func() (string, agent.Exit) {
		defer s.Close()
		var output strings.Builder
		for {
			event, err := s.Next()
			if err != nil {
				b.t.Errorf("%s: %v", script, err)
				return output.String(), agent.Exit{}
			}
			output.Write(event.Data)
			if event.Kind == agent.KindExited {
				_ = s.Settled()
				return output.String(), event.Exit
			}
		}
	}
}

// guarded starts a runner, and ends the test unless its commands have limits.
func (b *bench) guarded() runtime.RunnerID {
	b.t.Helper()
	if err := b.host.Machine.Undivided; err != nil {
		need.Lacks(b.t, "commands have no groups of their own here: %v", err)
	}
	id := b.begin(hostEnvironment())
	pid := b.agentOf(id)
	file := "run/memory.limit_in_bytes"
	if tree, _ := b.host.Trees.Controller("memory"); tree.V2 {
		file = "run/memory.max"
	}
	if processes, memory := limitOf(b.t, pid, "pids", "run/pids.max"), limitOf(b.t, pid, "memory", file); processes != b.most(48) || memory != fmt.Sprint(128<<20) {
		b.t.Fatalf("the commands' limits are %s processes and %s bytes: nothing is tried", processes, memory)
	}
	return id
}

// most returns the commands' common limit of processes, given the runner's.
func (b *bench) most(processes int64) string { return fmt.Sprint(processes + b.host.Trees.Launchers()) }

// waits runs until a file exists, and starts nothing. It uses no CPU meanwhile, which a shell
// couldn't without starting a process.
const waits = `exec perl -e 'select undef, undef, undef, 0.05 until -e "/workspace/go"'`

// bomb forks until it is refused, and then fails; its children wait.
const bomb = `exec python3 -c '
import os, signal
for i in range(300):
    try:
        if os.fork() == 0:
            signal.pause()
    except BlockingIOError:
        exit(3)
'`

func TestMemoryLimitNamesTheCommand(t *testing.T) {
	b := running(t)
	id := b.guarded()
	neighbour := b.launch(id, waits)
	greedy := b.launch(id, "python3 -c 'x = bytearray(1 << 30)'; exit 3")
	if _, exit := greedy(); exit.PerCommand == nil || exit.PerCommand.OOMKills != 1 || exit.PerCommand.ForksRefused != 0 || exit.Code != 3 {
		t.Errorf("the one that took too much: %+v %+v", exit, exit.PerCommand)
	}
	b.expect(id, "touch /workspace/go", "")
	if _, exit := neighbour(); exit.PerCommand == nil || *exit.PerCommand != (agent.CommandCounts{}) || exit.Code != 0 || exit.Signal != "" {
		t.Errorf("its neighbour: %+v %+v", exit, exit.PerCommand)
	}
	if seen, err := b.Evidence(t.Context(), id); err != nil || seen.OOMKills != 1 {
		t.Errorf("evidence %+v, %v", seen, err)
	}
}

func TestProcessLimitNamesTheCommand(t *testing.T) {
	b := running(t)
	id := b.guarded()
	neighbour := b.launch(id, waits)
	_, exit := b.launch(id, bomb)()
	if exit.Code != 3 || exit.Cause != agent.CauseSelf || exit.PerCommand == nil || exit.PerCommand.ForksRefused < 1 || exit.PeakProcesses < 40 || exit.PeakProcesses > 52 {
		t.Errorf("the bomb: %+v %+v", exit, exit.PerCommand)
	}
	b.expect(id, "touch /workspace/go", "")
	if _, exit := neighbour(); exit.PerCommand == nil || *exit.PerCommand != (agent.CommandCounts{}) || exit.Code != 0 || exit.Signal != "" {
		t.Errorf("its neighbour: %+v %+v", exit, exit.PerCommand)
	}
	if seen, err := b.Evidence(t.Context(), id); err != nil || seen.ProcessLimitHits < 1 {
		t.Errorf("evidence %+v, %v", seen, err)
	}
}

// TestExactLimitsOfProcesses: a limit is exact, alone and together with limits that the kernel enforces
// for each process.
func TestExactLimitsOfProcesses(t *testing.T) {
	b := running(t)
	id := b.guarded()
	const forks = `exec python3 -c '
import os, signal
made = 1
try:
    while made < 40:
        if os.fork() == 0:
            signal.pause()
        made += 1
except BlockingIOError:
    pass
print(made)
'`
	for _, limits := range []agent.Limits{{Processes: 1}, {Processes: 2, CPU: 5 * time.Second}, {Processes: 3, FileSize: 1 << 20}, {Processes: 16, OpenFiles: 30}, {Processes: 1, CPU: 5 * time.Second}} {
		printed, exit := b.launchLimited(id, forks, &limits)()
		if printed != fmt.Sprintf("%d\n", limits.Processes) || exit.Code != 0 || exit.PeakProcesses > limits.Processes {
			t.Errorf("%+v: %q, %+v", limits, printed, exit)
		}
	}
	// Afterwards the runner's own limit holds, which is exact for a single command, too.
	most := hostEnvironment().Resources.Processes
	if printed, exit := b.launch(id, strings.Replace(forks, "made < 40", "made < 200", 1))(); printed != fmt.Sprintf("%d\n", most) {
		t.Errorf("without a limit of its own: %q, %+v", printed, exit)
	}
}

// TestForkBombIsEndedInAFullRunner ends a program that forks as fast as it can, with an agent that
// gets only the CPU time that the bomb leaves.
func TestForkBombIsEndedInAFullRunner(t *testing.T) {
	b := running(t)
	id := b.guarded()
	_, exit := b.launch(id, "exec python3 -c 'import os\nwhile True:\n try: os.fork()\n except OSError: pass'")()
	if exit.PerCommand == nil || exit.PerCommand.ForksRefused == 0 || exit.Cause != agent.CauseProcessLimit {
		t.Errorf("the bomb: %+v %+v", exit, exit.PerCommand)
	}
	b.expect(id, "set -- /proc/[0-9]*; echo $#", "2") // the agent and the shell
}

// TestAgentSurvivesAFullRunner runs more commands than there are cgroups, so that the bomb in the
// shared one isn't ended, and sends many requests to the agent meanwhile.
func TestAgentSurvivesAFullRunner(t *testing.T) {
	b := running(t)
	id := b.guarded()
	pid := b.agentOf(id)
	var follow []func() (string, agent.Exit)
	for range 4 {
		follow = append(follow, b.launch(id, waits))
	}
	full := b.launch(id, "trap '' TERM; "+strings.ReplaceAll(bomb, "exit(3)\n'", "break\nwhile not os.path.exists(\"/workspace/go\"):\n    try:\n        if os.fork() == 0:\n            signal.pause()\n    except BlockingIOError:\n        pass\n'"))
	wait.For(b.t, "it fills the runner", func() bool { return limitOf(t, pid, "pids", "run/pids.current") == b.most(48) })
	var asking sync.WaitGroup
	for range 500 {
		asking.Go(func() {
			conn, err := b.Dial(t.Context(), id)
			if err != nil {
				t.Error(err)
				return
			}
			s, err := agent.StartExecution(t.Context(), conn, agent.Start{ID: string(runtime.NewExecutionID()), Argv: []string{"/bin/true"}})
			var refused *agent.Error
			switch {
			case err == nil:
				_, _ = s.Next()
				_ = s.Close()
			case !errors.As(err, &refused):
				t.Error(err)
			}
		})
	}
	asking.Wait()
	if r, _ := b.runner(id); r.State != runtime.RunnerIdle {
		t.Fatalf("the runner is %s (%s)", r.State, r.GoneReason)
	}
	conn, err := b.Dial(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	update := agent.Update{Write: []agent.Write{{Path: "go", Directory: true}}}
	if _, err := agent.UpdateFiles(t.Context(), conn, update, nil); err != nil {
		t.Fatal(err)
	}
	for _, f := range append(follow, full) {
		f()
	}
	b.expect(id, "echo still here", "still here")
}

func TestManyConcurrentCommands(t *testing.T) {
	b := running(t)
	id := b.guarded()
	var all sync.WaitGroup
	for i := range 500 {
		all.Go(func() {
			conn, err := b.Dial(t.Context(), id)
			if err != nil {
				t.Error(err)
				return
			}
			s, err := agent.StartExecution(t.Context(), conn, agent.Start{ID: fmt.Sprint("many-", i), Argv: []string{"/bin/true"}})
			if err != nil {
				return // refused, for there is no room
			}
			defer s.Close()
			for {
				event, err := s.Next()
				if err != nil {
					t.Error(err)
					return
				}
				if event.Kind == agent.KindExited {
					if event.Exit.Code != 0 || event.Exit.Signal != "" {
						t.Errorf("%+v", event.Exit)
					}
					_ = s.Settled()
					return
				}
			}
		})
	}
	all.Wait()
	b.expect(id, "echo still here", "still here")
}

// TestCommandsHaveTheirOwnCgroups: a command and its descendants are in a cgroup of their own,
// which is empty afterwards and used again.
func TestCommandsHaveTheirOwnCgroups(t *testing.T) {
	b := running(t)
	id := b.guarded()
	tree, _ := b.host.Trees.Controller("pids")
	group := filepath.Join(tree.Mount, b.config.CgroupParent, string(id), "run", "x0")
	count := func() string {
		text, err := os.ReadFile(filepath.Join(group, "pids.current"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	launcher := min(1, b.host.Trees.Launchers()) // the agent's thread, in version 1
	for range 3 {
		follow := b.launch(id, "(setsid sh -c 'sleep 100 & sleep 101' & ) ; "+waits)
		wait.For(b.t, "one that waits, a shell and two that sleep are in "+group, func() bool { return count() == fmt.Sprint(4+launcher) })
		b.expect(id, "touch /workspace/go", "")
		if _, exit := follow(); exit.Code != 0 || exit.PerCommand == nil {
			t.Errorf("%+v", exit)
		}
		b.expect(id, "rm /workspace/go; set -- /proc/[0-9]*; echo $#", "2") // the agent and this shell
	}
	wait.For(b.t, "nothing stays in "+group, func() bool { return count() == fmt.Sprint(launcher) })
}

func TestUsage(t *testing.T) {
	b := running(t)
	id := b.guarded()
	// The parent ignores SIGCHLD, so that nobody waits for the working child.
	_, worked := b.sh(id, `exec python3 -c '
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if os.fork() == 0:
    end = time.process_time() + 0.5
    while time.process_time() < end: pass
    x = bytearray(30 << 20)
    os._exit(0)
r, w = os.pipe()
try: os.waitpid(-1, 0)
except ChildProcessError: pass
'`)
	if worked.User+worked.System < 450*time.Millisecond {
		t.Errorf("%v of CPU time", worked.User+worked.System)
	}
	if worked.PeakMemory < 30<<20 || worked.PeakMemory > 100<<20 || worked.PeakProcesses != 2 {
		t.Errorf("%d bytes, %d processes", worked.PeakMemory, worked.PeakProcesses)
	}
	if worked.BytesRead == nil || worked.BytesWritten == nil || *worked.BytesWritten != 0 {
		t.Errorf("read %v, written %v", worked.BytesRead, worked.BytesWritten)
	}
	// Counts of the previous command in the cgroup aren't the next one's.
	b.expect(id, "head -c 10000000 /dev/zero >/workspace/file", "")
	if _, exit := b.sh(id, "true"); exit.PeakMemory > 9<<20 || exit.User+exit.System > (worked.User+worked.System)/2 {
		t.Errorf("true used %d bytes, %v", exit.PeakMemory, exit.User+exit.System)
	}
}
