package commands

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/wait"

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

// killWithHelper kills a command with a private server. It returns the server's directory and its lock,
// which the test then holds as a helper would. The heir sees nothing in between.
func killWithHelper(t *testing.T, s *screen, state string) (nest string, lock *os.File) {
	t.Helper()
	nests, _ := filepath.Glob(filepath.Join(state, "rockpool-private", "run-*"))
	if len(nests) != 1 {
		t.Fatalf("%q", nests)
	}
	lock, err := os.Open(filepath.Join(nests[0], "local", "lock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Close() })
	heir := heirOf(t, s.cmd.Process.Pid)
	if err := heir.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = heir.Signal(syscall.SIGCONT) }()
	if err := s.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return nests[0], lock
}

// heirOf returns the process that cleans up if the process pid is killed.
func heirOf(t *testing.T, pid int) *os.Process {
	t.Helper()
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		if line, _ := os.ReadFile(path); strings.HasSuffix(string(line), fmt.Sprintf("\x00heir\x00%d\x00", pid)) {
			id, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			heir, err := os.FindProcess(id)
			if err != nil {
				t.Fatal(err)
			}
			return heir
		}
	}
	t.Fatal("no heir")
	return nil
}

// TestE2EPrivateServerKeepsRecordsOfWhatItCannotClean: a killed private server leaves a runner that
// can't be removed at first. The records that lead to it stay, and so do its user ids.
func TestE2EPrivateServerKeepsRecordsOfWhatItCannotClean(t *testing.T) {
	environ, state := privately(t)
	s := onScreen(t, environ, bed.Rockpool(t), "run", "--env", "shell", "--", "sh", "-c", "echo begun; sleep 1000")
	s.sees(t, "begun")
	nest, lock := killWithHelper(t, s, state)
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
	if held, _ := filepath.Glob(filepath.Join(nest, "local", "runners", "*")); len(held) == 0 {
		t.Error("the way to the runner is gone")
	}
	if len(bed.Leftovers(nest, bed.Cgroups+"-private/*")) == 0 {
		t.Error("the runner is gone, so this test shows nothing")
	}
	_ = lock.Close()
	if errs := run(); strings.Contains(errs, "couldn't be removed") {
		t.Errorf("%q", errs)
	}
}

// TestE2EPrivateServerIsCleanedUpAfterItsHelpers: a private server is killed while a helper of it runs for
// longer than a server waits. No other private server starts, and nothing stays.
func TestE2EPrivateServerIsCleanedUpAfterItsHelpers(t *testing.T) {
	environ, state := privately(t)
	s := onScreen(t, environ, bed.Rockpool(t), "run", "--env", "shell", "--", "sh", "-c", "echo begun; sleep 1000")
	s.sees(t, "begun")
	nest, lock := killWithHelper(t, s, state)
	<-time.After(8 * time.Second) // a server waits for 6 s
	if held, _ := filepath.Glob(filepath.Join(nest, "local", "runners", "*")); len(held) == 0 {
		t.Error("the way to the runner is gone")
	}
	_ = lock.Close()
	parent := filepath.Dir(nest)
	wait.For(t, "the end of all that it left", func() bool {
		_, err := os.Stat(parent)
		return os.IsNotExist(err) && len(bed.Leftovers(nest, bed.Cgroups+"-private/*")) == 0
	})
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

// TestE2EPrivateServersShareCaches: of private servers that start together, one makes the cache of a language, and
// the others wait for it. Later ones find it, until its recipe changes.
func TestE2EPrivateServersShareCaches(t *testing.T) {
	_, state := privately(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"hello.greeting": `cat "$GREETING/text"; touch "$GREETING/text" 2>/dev/null || echo read-only`,
		"languages.yaml": `languages:
  - id: greeting
    extensions: [.greeting]
    fileName: main.greeting
    run: [sh, "{file}"]
    environments: [greeting]
    cache:
      make: [sh, -c, 'echo made >>"$MADE" && echo hello >"$GREETING/text"']
      variables: ["GREETING={cache}", MADE=` + dir + `/made]
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("ROCKPOOL_LANGUAGES", filepath.Join(dir, "languages.yaml"))
	run := func() {
		out, errs, code := bed.RunProgram(t, nil, bed.Rockpool(t), "run", filepath.Join(dir, "hello.greeting"))
		if out != "hello\nread-only\n" || code != 0 {
			t.Errorf("%q %q %d", out, errs, code)
		}
	}
	made := func(want string) {
		if text, err := os.ReadFile(filepath.Join(dir, "made")); string(text) != want {
			t.Errorf("%q %v, want %q", text, err, want)
		}
	}
	var both sync.WaitGroup
	both.Go(run)
	both.Go(run)
	both.Wait()
	run()
	made("made\n")
	change := func(from, to string) {
		text, err := os.ReadFile(filepath.Join(dir, "languages.yaml"))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "languages.yaml"), []byte(strings.Replace(string(text), from, to, 1)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	killed := filepath.Join(state, "rockpool-caches", "greeting", "new-1")
	if err := os.Mkdir(killed, 0o700); err != nil {
		t.Fatal(err)
	}
	change("echo hello", "echo  hello")
	run()
	made("made\nmade\n")
	if _, err := os.Stat(killed); err == nil {
		t.Error("the incomplete cache of a killed server stays")
	}
	change("echo  hello", "exit 3; echo hello")
	for range 2 { // the second one doesn't try
		_, errs, _ := bed.RunProgram(t, nil, bed.Rockpool(t), "run", filepath.Join(dir, "hello.greeting"))
		if !strings.Contains(errs, "the cache of greeting can't be made") || !strings.Contains(errs, "exit status 3") {
			t.Errorf("%q", errs)
		}
	}
	made("made\nmade\nmade\n")
	if kept, _ := filepath.Glob(filepath.Join(state, "rockpool-caches", "greeting", "*")); len(kept) != 3 { // one for each recipe, and a failure
		t.Errorf("%q", kept)
	}
	if err := os.RemoveAll(filepath.Join(state, "rockpool-caches")); err != nil { // the caches stay, and nothing else
		t.Fatal(err)
	}
}
