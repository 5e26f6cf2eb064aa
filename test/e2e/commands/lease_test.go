package commands

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/wait"
)

// outcomes returns the states or outcomes of an environment's executions, the oldest first.
func outcomes(t testing.TB, b bed.Bed, environment string) string {
	t.Helper()
	var out struct {
		Executions struct {
			Nodes []struct{ State, Outcome, Message string }
		}
	}
	b.Call(t, `query($id: ID!) { executions(environmentId: $id) { nodes { state outcome message } } }`, object{"id": environment}, &out)
	var all []string
	for _, x := range out.Executions.Nodes {
		all = append(all, strings.TrimSpace(x.State+" "+x.Outcome+" "+x.Message))
	}
	return strings.Join(all, "; ")
}

// TestE2EAClosedPipeCancelsTheProgram is | head -1: the program would print for ever.
func TestE2EAClosedPipeCancelsTheProgram(t *testing.T) {
	b := bed.Open(t)
	id := "piped-" + uuid.NewString() // unique: executions are kept
	b.Put(t, object{"id": id, "poolSize": 1})
	forever := []string{"--", "sh", "-c", "while :; do echo x; sleep 0.1; done"}
	runner := strings.TrimSpace(b.Works(t, "runner", "claim", id))
	for _, args := range [][]string{
		append([]string{"run", "--server", b.Address, "--time-limit", "0", "--env", id}, forever...),
		append([]string{"runner", "exec", "--server", b.Address, "--time-limit", "0", runner}, forever...),
	} {
		cmd := exec.Command(bed.Rockpool(t), args...)
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var errs strings.Builder
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(pipe).ReadString('\n'); line != "x\n" || err != nil {
			t.Errorf("%q, %v", line, err)
		}
		_ = pipe.Close()
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 141 || strings.Contains(errs.String(), "broken pipe") {
			t.Errorf("%s ended with %v, %s", args[0], err, errs.String())
		}
	}
	wait.For(t, "both have ended", func() bool { return !strings.Contains(outcomes(t, b, id), "RUNNING") })
	if all := outcomes(t, b, id); all != "FINISHED CANCELLED cancelled; FINISHED CANCELLED cancelled" {
		t.Error(all)
	}
	b.Works(t, "runner", "release", runner)
}

// TestE2EAKilledCommandsProgramIsCancelled kills commands that can't say goodbye. Only their leases end
// what they started.
func TestE2EAKilledCommandsProgramIsCancelled(t *testing.T) {
	b := bed.Open(t)
	id := "killed-" + uuid.NewString()
	b.Put(t, object{"id": id, "poolSize": 2})
	runner := strings.TrimSpace(b.Works(t, "runner", "claim", id))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "1.in"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var commands []*exec.Cmd
	for _, args := range [][]string{
		{"run", "--server", b.Address, "--time-limit", "0", "--env", id, "--", "sleep", "inf"},
		{"runner", "exec", "--server", b.Address, "--time-limit", "0", runner, "--", "sleep", "inf"},
		{"run", "--server", b.Address, "--time-limit", "0", "--env", id, "--cases", dir, "--", "sleep", "inf"},
	} {
		cmd := exec.Command(bed.Rockpool(t), args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
		commands = append(commands, cmd)
	}
	wait.For(t, "all run", func() bool { return strings.Count(outcomes(t, b, id), "RUNNING") == len(commands) })
	for _, cmd := range commands {
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	wait.For(t, "their leases end", func() bool { return !strings.Contains(outcomes(t, b, id), "RUNNING") })
	if all := outcomes(t, b, id); strings.Count(all, "FINISHED CANCELLED") != len(commands) || strings.Count(all, "didn't renew its lease of 60 s") != 2 {
		t.Error(all) // the case of a batch is cancelled with its batch
	}
	b.Works(t, "runner", "release", runner)
}
