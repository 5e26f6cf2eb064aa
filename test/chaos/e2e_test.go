package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

func TestMain(m *testing.M) {
	if os.Getenv("ROCKPOOL_CHAOS") != "" { // as the program itself
		os.Exit(execute(os.Args[1:], command.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
	}
	os.Exit(m.Run())
}

// TestE2EChaosInterrupted interrupts a run. The phase chaos of scripts/test has a complete one.
func TestE2EChaosInterrupted(t *testing.T) {
	need.Chaos(t)
	temporary := t.TempDir()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "--program", bed.Rockpool(t), "--seed", "1", "--every", "500ms")
	cmd.Env = append(os.Environ(), "ROCKPOOL_CHAOS=yes", "TMPDIR="+temporary)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	group := "rockpool/chaos-" + strconv.Itoa(cmd.Process.Pid)
	wait.For(t, "its runners are there", func() bool { return len(bed.Leftovers(temporary, group)) > 20 })
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil { // as a terminal does
		t.Fatal(err)
	}
	_ = cmd.Wait() // its exit code is checked below
	if code := cmd.ProcessState.ExitCode(); code != command.CodeInterrupted {
		t.Errorf("exit %d, want %d", code, command.CodeInterrupted)
	}
	left := bed.Leftovers(temporary, group)
	files, _ := filepath.Glob(filepath.Join(temporary, "*"))
	if left = append(left, files...); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestChaosRefusesWrongFlags(t *testing.T) {
	need.Sandboxes(t) // it refuses other users than root first
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--for", "1s"}, "10s to 3m"},
		{[]string{"--for", "1h"}, "10s to 3m"},
		{[]string{"--every", "1ms"}, "200ms to 1m"},
		{[]string{"--clients", "0"}, "1 to 16"},
		{[]string{"--servers", "6"}, "1 to 5"},
		{[]string{"--servers", "3"}, "1 without --nomad"},
		{[]string{"--nomad", "/nonesuch"}, "make chaos CLUSTER=nomad builds it"},
	} {
		var out, errs strings.Builder
		if code := execute(test.args, command.Streams{Out: &out, Err: &errs}); code == 0 || !strings.Contains(errs.String(), test.want) {
			t.Errorf("%q: exit %d, %s", test.args, code, errs.String())
		}
	}
}
