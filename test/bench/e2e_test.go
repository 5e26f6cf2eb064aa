package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/server"
	"github.com/rockpool/rockpool/test/bench/measure"
	e2e "github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

// Slow: it measures a few rows, and ends benches at several moments.

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "--serve-floors" || os.Getenv("ROCKPOOL_BENCH") != "") { // as the program itself
		os.Exit(execute(os.Args[1:], command.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
	}
	_ = os.Setenv("ROCKPOOL_BENCH", "yes") // for thisProgram
	os.Exit(m.Run())
}

// thisProgram returns a command that runs the bench.
func thisProgram(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exec.CommandContext(t.Context(), program, append(args, "--program", e2e.Rockpool(t))...)
}

// benchLeftovers returns the cgroups, directories and processes that a bench left.
func benchLeftovers(t testing.TB, pid, temporary string) []string {
	t.Helper()
	left := e2e.Leftovers(temporary, "rockpool/bench-"+pid+"-1")
	directories, _ := filepath.Glob(filepath.Join(temporary, "*"))
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/rockpool/bench-" + pid + "-*")
	unified, _ := filepath.Glob("/sys/fs/cgroup/rockpool/bench-" + pid + "-*")
	return append(left, append(directories, append(groups, unified...)...)...)
}

// TestE2EBench measures a row and checks the report, not the speed.
func TestE2EBench(t *testing.T) {
	t.Parallel()
	temporary := t.TempDir()
	cmd := thisProgram(t, "--row", "claim", "--row", "claim/*", "--row", "first-output/*", "--row", "flat/first-output/history", "--quick", "--json")
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s%s", err, stdout.String(), stderr.String())
	}
	var report measure.Report
	decoder := json.NewDecoder(strings.NewReader(stdout.String()))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&report); err != nil {
		t.Fatalf("%v: %s", err, stdout.String())
	}
	if !strings.HasPrefix(report.Version, server.Release) || report.Machine.CPUs < 1 || report.Machine.Kernel == "" || !report.Quick || report.Rounds != 2 {
		t.Errorf("the report: %+v", report)
	}
	wanted := []string{"claim", "claim/burst", "first-output/websocket", "first-output/sse", "flat/first-output/history"}
	for i, row := range report.Rows {
		if i >= len(wanted) || row.Name != wanted[i] {
			t.Fatalf("row %d is %s", i, row.Name)
		}
		for _, s := range []measure.Summary{row.Row, row.Floor} {
			if s.N == 0 || s.Min <= 0 || s.Min > s.P10 || s.P10 > s.P50 || s.P50 > s.P99 || s.P99 > s.Max {
				t.Errorf("%s: %+v", row.Name, s)
			}
		}
		if row.Error != "" || row.Unit != measure.Milliseconds || row.Ratio <= 0 || row.ServerMiB <= 0 || row.Took <= 0 || row.CPU == nil || row.CPU.Server <= 0 {
			t.Errorf("%+v", row)
		}
		if !strings.Contains(stderr.String(), "] "+row.Name+"\n") {
			t.Errorf("no progress of %s on stderr: %s", row.Name, stderr.String())
		}
	}
	if len(report.Rows) != len(wanted) {
		t.Errorf("%d rows, want %q", len(report.Rows), wanted)
	}
	if left := benchLeftovers(t, strconv.Itoa(cmd.Process.Pid), temporary); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// benchWithRunners starts a bench that runs for a long time, and waits until its server has
// runners.
func benchWithRunners(t *testing.T, temporary string) (cmd *exec.Cmd, pid string) {
	t.Helper()
	cmd = thisProgram(t, "--row", "true/graphql/2", "--rounds", "1000")
	// No server would start with these settings.
	home := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(home, "rockpool"), 0o755), os.WriteFile(filepath.Join(home, "rockpool", "config.yaml"), []byte("listen: [\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary, "XDG_CONFIG_HOME="+home)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid = strconv.Itoa(cmd.Process.Pid)
	wait.For(t, "two runners are claimed and two idle", func() bool {
		groups, _ := filepath.Glob("/sys/fs/cgroup/pids/rockpool/bench-" + pid + "-1/*/cgroup.procs")
		unified, _ := filepath.Glob("/sys/fs/cgroup/rockpool/bench-" + pid + "-1/*/cgroup.procs")
		return len(groups) == 4 || len(unified) == 4
	})
	return cmd, pid
}

// TestE2EBenchKilled: after a SIGKILL only the server itself can clean up. It does; only its
// directory stays in TMPDIR.
func TestE2EBenchKilled(t *testing.T) {
	t.Parallel()
	temporary := t.TempDir()
	cmd, pid := benchWithRunners(t, temporary)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	var left []string
	defer func() {
		if len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	}()
	wait.For(t, "its server and the runners end", func() bool {
		left = left[:0]
		for _, what := range benchLeftovers(t, pid, temporary) {
			if !strings.HasPrefix(what, temporary) {
				left = append(left, what)
			}
		}
		processes, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, path := range processes {
			if text, _ := os.ReadFile(path); strings.Contains(string(text), temporary) {
				left = append(left, path)
			}
		}
		return len(left) == 0
	})
}

// TestE2EBenchInterrupted interrupts a bench in the middle of a row.
func TestE2EBenchInterrupted(t *testing.T) {
	t.Parallel()
	temporary := t.TempDir()
	cmd, pid := benchWithRunners(t, temporary)
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil { // as a terminal does
		t.Fatal(err)
	}
	_ = cmd.Wait() // its exit code is checked below
	if code := cmd.ProcessState.ExitCode(); code != command.CodeInterrupted {
		t.Errorf("exit %d, want %d", code, command.CodeInterrupted)
	}
	if left := benchLeftovers(t, pid, temporary); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestE2EBenchInterruptedReportsFinishedRows interrupts a bench in its second row.
func TestE2EBenchInterruptedReportsFinishedRows(t *testing.T) {
	t.Parallel()
	temporary := t.TempDir()
	cmd := thisProgram(t, "--row", "claim", "--row", "true/graphql/2", "--quick", "--json")
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary)
	var stdout strings.Builder
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "[2/2]") {
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // its exit code is checked below
	var report measure.Report
	err = json.Unmarshal([]byte(stdout.String()), &report)
	if code := cmd.ProcessState.ExitCode(); err != nil || code != command.CodeInterrupted || !report.Interrupted || len(report.Rows) != 1 || report.Rows[0].Name != "claim" || report.Rows[0].Row.N == 0 {
		t.Errorf("exit %d, %v: %s", code, err, stdout.String())
	}
	if left := benchLeftovers(t, strconv.Itoa(cmd.Process.Pid), temporary); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestE2EBenchOfKilledServersLeavesNothing measures rows that kill servers, and the scheduler
// alone.
func TestE2EBenchOfKilledServersLeavesNothing(t *testing.T) {
	t.Parallel()
	temporary := t.TempDir()
	cmd := thisProgram(t, "--row", "recover", "--row", "schedule", "--quick", "--json")
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary)
	out, err := cmd.Output()
	var report measure.Report
	if err = errors.Join(err, json.Unmarshal(out, &report)); err != nil || len(report.Rows) != 2 {
		t.Fatalf("%v: %s", err, out)
	}
	for _, row := range report.Rows {
		if row.Error != "" || row.Row.N != 2 || row.Floor.N != 2 || row.Row.Min <= 0 {
			t.Errorf("%+v", row)
		}
	}
	if left := benchLeftovers(t, strconv.Itoa(cmd.Process.Pid), temporary); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestE2EBenchOfTenants measures rows in which tenants flood a server, and wait for each other.
func TestE2EBenchOfTenants(t *testing.T) {
	t.Parallel()
	temporary := t.TempDir()
	cmd := thisProgram(t, "--row", "fair", "--quick", "--json")
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary)
	out, err := cmd.Output()
	var report measure.Report
	if err = errors.Join(err, json.Unmarshal(out, &report)); err != nil || len(report.Rows) != 2 {
		t.Fatalf("%v: %s", err, out)
	}
	for i, want := range []struct {
		samples int
		note    string
	}{{12, "the flood ran "}, {2, "the last runner of each tenant came "}} {
		row := report.Rows[i]
		if row.Error != "" || row.Row.N != want.samples || row.Floor.N != want.samples || row.Floor.Min <= 0 || row.Ratio <= 0 || !strings.HasPrefix(row.Note, want.note) {
			t.Errorf("%+v", row)
		}
	}
	if crowd := report.Rows[1]; crowd.Ratio < 1 {
		t.Errorf("the one that waits longest waits ×%v of the one that waits least", crowd.Ratio)
	}
	if left := benchLeftovers(t, strconv.Itoa(cmd.Process.Pid), temporary); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestBenchRefusesWrongFlags(t *testing.T) {
	need.Sandboxes(t) // it refuses other users than root first
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--row", "nothing"}, "see --list"},
		{[]string{"--rounds", "1001"}, "1 to 1000"},
		{[]string{"--rounds=-1"}, "1 to 1000"},
	} {
		var out, errs strings.Builder
		if code := execute(test.args, command.Streams{Out: &out, Err: &errs}); code == 0 || !strings.Contains(errs.String(), test.want) {
			t.Errorf("%q: exit %d, %s", test.args, code, errs.String())
		}
	}
	var out, errs strings.Builder
	if code := execute([]string{"--list"}, command.Streams{Out: &out, Err: &errs}); code != 0 || !strings.Contains(out.String(), "claim (ms)\n") {
		t.Errorf("--list: exit %d, %s%s", code, out.String(), errs.String())
	}
}
