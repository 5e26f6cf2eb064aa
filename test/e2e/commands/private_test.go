package commands

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/test/e2e/bed"

	"golang.org/x/sys/unix"
)

// TestE2EPrivateServerInterruptedAtStartLeavesNothing interrupts a private server at every moment
// of its start.
func TestE2EPrivateServerInterruptedAtStartLeavesNothing(t *testing.T) {
	environ, _ := privately(t)
	for range 10 {
		s := onScreen(t, environ, bed.Rockpool(t), "run", "--env", "shell", "--", "sleep", "1000")
		s.sees(t, "starting a temporary one")
		bed.AtSomeMoment(600 * time.Millisecond)
		s.types(t, "\x03")
		s.ends(t, 130)
	}
}

// TestE2EPrivateServerListensOnNoPort searches for a port that others could connect to.
func TestE2EPrivateServerListensOnNoPort(t *testing.T) {
	environ, state := privately(t)
	s := onScreen(t, environ, bed.Rockpool(t), "run", "--env", "shell", "--", "sh", "-c", "echo begun; sleep 1000")
	s.sees(t, "begun")
	if ports := listeningPorts(t, s.cmd.Process.Pid); len(ports) > 0 {
		t.Errorf("it listens: %q", ports)
	}
	nests, _ := filepath.Glob(filepath.Join(state, "rockpool-private", "run-*"))
	if len(nests) != 1 {
		t.Fatalf("%q", nests)
	}
	if info, err := os.Stat(nests[0]); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info, err)
	}
	s.types(t, "\x03")
	s.ends(t, 130)
}

// listeningPorts returns the lines of /proc/net/tcp for a process's listening ports.
func listeningPorts(t *testing.T, pid int) []string {
	t.Helper()
	mine := map[string]bool{}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(fds) == 0 {
		t.Fatal(fds, err)
	}
	for _, fd := range fds {
		link, _ := os.Readlink(fd)
		mine[strings.TrimSuffix(strings.TrimPrefix(link, "socket:["), "]")] = true
	}
	var ports []string
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table)
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 9 && f[3] == "0A" && mine[f[9]] {
				ports = append(ports, line)
			}
		}
	}
	return ports
}

// TestE2EPrivateServerKeepsRecordsOfWhatItCannotClean: a killed private server leaves a runner that
// can't be removed at first. The records that lead to it stay, and so do its user ids.
func TestE2EPrivateServerKeepsRecordsOfWhatItCannotClean(t *testing.T) {
	environ, state := privately(t)
	s := onScreen(t, environ, bed.Rockpool(t), "run", "--env", "shell", "--", "sh", "-c", "echo begun; sleep 1000")
	s.sees(t, "begun")
	if err := s.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	nests, _ := filepath.Glob(filepath.Join(state, "rockpool-private", "run-*"))
	if len(nests) != 1 {
		t.Fatalf("%q", nests)
	}
	lock, err := os.Open(filepath.Join(nests[0], "local", "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	run := func() string {
		_, errs, code := bed.RunProgram(t, nil, bed.Rockpool(t), "run", "--env", "shell", "--", "true")
		if code != 0 {
			t.Errorf("%d %s", code, errs)
		}
		return errs
	}
	if errs := run(); strings.Count(errs, "couldn't be removed") != 1 || strings.Count(bed.WithoutWaitingLine(errs), "\n") != 2 {
		t.Errorf("%q", errs)
	}
	if held, _ := filepath.Glob(filepath.Join(nests[0], "local", "runners", "*")); len(held) == 0 {
		t.Error("the way to the runner is gone")
	}
	if len(bed.Leftovers(nests[0], bed.Cgroups+"-private/*")) == 0 {
		t.Error("the runner is gone, so this test shows nothing")
	}
	_ = lock.Close()
	if errs := run(); strings.Contains(errs, "couldn't be removed") {
		t.Errorf("%q", errs)
	}
}

// TestE2EPrivateServerStartsNextToAnUnremovableDirectory: the directory of a killed private server
// can't be removed, because something is mounted in it.
func TestE2EPrivateServerStartsNextToAnUnremovableDirectory(t *testing.T) {
	program := bed.Rockpool(t)
	_, state := privately(t)
	left := filepath.Join(state, "rockpool-private", "run-left")
	mounted := filepath.Join(left, "mounted")
	if err := os.MkdirAll(mounted, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", mounted, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	run := func() string {
		_, errs, code := bed.RunProgram(t, nil, program, "run", "--env", "shell", "--", "true")
		if code != 0 {
			t.Errorf("%d %s", code, errs)
		}
		return errs
	}
	errs := run()
	if err := unix.Unmount(mounted, 0); err != nil {
		t.Fatal(err)
	}
	if strings.Count(errs, left+" stays") != 1 || !strings.Contains(errs, "device or resource busy") {
		t.Errorf("%q", errs)
	}
	if errs := run(); strings.Contains(errs, "couldn't be removed") {
		t.Errorf("%q", errs)
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("%s: %v", left, err)
	}
}
