package commands

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/test/e2e/bed"

	"github.com/creack/pty"
	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/test/wait"
)

// A screen is a terminal on which a program runs, as for a user.
type screen struct {
	master, slave *os.File
	cmd           *exec.Cmd
	before        unix.Termios
	read          chan string
	seen          string // since the last match
	reader        sync.WaitGroup
}

// onScreen starts a command on a terminal of 80 columns and 24 rows.
func onScreen(t *testing.T, environ []string, name string, args ...string) *screen {
	t.Helper()
	master, slave, err := pty.Open()
	if err == nil {
		err = pty.Setsize(slave, &pty.Winsize{Cols: 80, Rows: 24})
	}
	if err != nil {
		t.Fatal(err)
	}
	master = closable(t, master)
	s := &screen{master: master, slave: slave, cmd: exec.Command(name, args...), read: make(chan string)}
	s.before = s.termios(t)
	s.cmd.Env = append(os.Environ(), environ...)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = slave, slave, slave
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	s.reader.Go(func() {
		defer close(s.read)
		buffer := make([]byte, 4096)
		for {
			n, err := master.Read(buffer)
			if err != nil {
				return
			}
			select {
			case s.read <- string(buffer[:n]):
			case <-done:
				return
			}
		}
	})
	t.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait()
		}
		close(done)
		_ = slave.Close()
		_ = master.Close()
		s.reader.Wait()
	})
	return s
}

// closable returns a file whose Close ends a blocked Read. Files of package pty are in blocking
// mode, where Close would wait for the Read.
func closable(t testing.TB, file *os.File) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), file.Name())
}

func (s *screen) termios(t testing.TB) unix.Termios {
	t.Helper()
	got, err := unix.IoctlGetTermios(int(s.slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *got
}

func (s *screen) types(t testing.TB, keys string) {
	t.Helper()
	if _, err := s.master.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// sees waits until the screen shows a text, and returns what it has shown before.
func (s *screen) sees(t testing.TB, text string) (before string) {
	t.Helper()
	for !strings.Contains(s.seen, text) {
		more := wait.Receive(t, s.read, fmt.Sprintf("%q on a screen that shows %q", text, s.seen))
		if more == "" {
			t.Fatalf("ended before %q; the screen shows %q", text, s.seen)
		}
		s.seen += more
	}
	before, s.seen, _ = strings.Cut(s.seen, text)
	return before
}

// ends waits for the command's end with this code, and checks that the terminal was restored.
func (s *screen) ends(t testing.TB, code int) {
	t.Helper()
	const last = "all is read"
	ended := make(chan error, 1)
	go func() { ended <- s.cmd.Wait() }()
	late := time.After(wait.Limit)
	for {
		select {
		case more := <-s.read:
			s.seen += more
			if rest, all := strings.CutSuffix(s.seen, last); all {
				s.seen = rest
				return
			}
		case err := <-ended:
			var failed *exec.ExitError
			if err != nil && !errors.As(err, &failed) || s.cmd.ProcessState.ExitCode() != code {
				t.Errorf("ended with %v, want exit %d; the screen shows %q", err, code, s.seen)
			}
			if after := s.termios(t); after != s.before {
				t.Errorf("the terminal was left as %+v, it was %+v", after, s.before)
			}
			// The command's last output may not have been read yet. This marker comes after it.
			if _, err := s.slave.WriteString(last); err != nil {
				t.Fatal(err)
			}
		case <-late:
			t.Fatalf("it doesn't end; the screen shows %q", s.seen)
		}
	}
}

// isRaw waits until the terminal is in raw mode, so that keys are passed on.
func (s *screen) isRaw(t testing.TB) {
	t.Helper()
	wait.For(t, "the terminal is raw", func() bool { return s.termios(t).Lflag&(unix.ICANON|unix.ISIG|unix.ECHO) == 0 })
}

func TestE2ERunOnATerminal(t *testing.T) {
	b := bed.Open(t)
	s := onScreen(t, []string{"TERM=vt220"}, bed.Rockpool(t), "run", "--server", b.Address, "--env", "python", "--tty", "--", "python3", "-q", "-i")
	s.sees(t, ">>> ")
	s.isRaw(t)
	s.types(t, "import os, sys, time; print([os.isatty(n) for n in range(3)], os.environ['TERM'], os.get_terminal_size())\n")
	s.sees(t, "[True, True, True] vt220 os.terminal_size(columns=80, lines=24)\r\n")
	if err := pty.Setsize(s.slave, &pty.Winsize{Cols: 132, Rows: 43}); err != nil {
		t.Fatal(err)
	}
	s.types(t, "while os.get_terminal_size().columns != 132: time.sleep(0.01)\n\n")
	s.types(t, "print('si'+'ze', os.popen('stty size').read())\n")
	s.sees(t, "size 43 132\r\n")
	s.types(t, "print('be'+'fore'); [time.sleep(0.01) for _ in range(100000)]\n")
	s.sees(t, "before\r\n")
	s.types(t, "\x03")
	s.sees(t, "KeyboardInterrupt")
	s.types(t, "sys.exit(7)\n")
	s.ends(t, 7)
}

// TestE2ETerminalIsRestored ends a program on a terminal in every way except its own exit.
func TestE2ETerminalIsRestored(t *testing.T) {
	b := bed.Open(t)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		s := onScreen(t, nil, bed.Rockpool(t), "run", "--server", b.Address, "--env", "shell", "--tty", "--", "sh", "-c", "trap '' HUP INT TERM; echo begun; sleep 1000")
		s.sees(t, "begun")
		s.isRaw(t)
		if err := s.cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		s.ends(t, 130)
	}
	wait.For(t, "nothing of it runs", func() bool {
		var out struct{ Runners struct{ TotalCount int } }
		b.Call(t, `{ runners(environmentId: "shell", states: [CLAIMED]) { totalCount } }`, nil, &out)
		return out.Runners.TotalCount == 0
	})
}

// TestE2EHangUpEndsTheProgram closes the terminal's window.
func TestE2EHangUpEndsTheProgram(t *testing.T) {
	b := bed.Open(t)
	id := "hangup-" + uuid.NewString() // unique: executions are kept
	b.Put(t, object{"id": id, "poolSize": 1})
	s := onScreen(t, nil, bed.Rockpool(t), "run", "--server", b.Address, "--env", id, "--tty", "--", "sh", "-c", "echo begun; sleep 1000")
	s.sees(t, "begun")
	_ = s.slave.Close()
	_ = s.master.Close()
	if err := s.cmd.Wait(); s.cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("ended with %v", err)
	}
	wait.For(t, "its execution is cancelled", func() bool {
		var out struct {
			Executions struct{ Nodes []struct{ Outcome string } }
		}
		b.Call(t, `query($id: ID!) { executions(environmentId: $id) { nodes { outcome } } }`, object{"id": id}, &out)
		return len(out.Executions.Nodes) == 1 && out.Executions.Nodes[0].Outcome == "CANCELLED"
	})
}

// TestE2ECtrlCEndsACommandWithoutAServer kills the server of a command on a terminal.
func TestE2ECtrlCEndsACommandWithoutAServer(t *testing.T) {
	t.Parallel()
	p := bed.ServeBinary(t, bed.DataDir(t))
	s := onScreen(t, nil, bed.Rockpool(t), "run", "--server", p.Address, "--env", "shell", "--tty", "--", "cat")
	s.isRaw(t)
	s.types(t, "heard\r")
	s.sees(t, "heard\r\nheard\r\n")
	p.End(t, syscall.SIGKILL, false)
	s.sees(t, "the connection broke")
	s.types(t, "\x03")
	s.ends(t, 130)
	again := bed.ServeBinary(t, p.Data)
	again.End(t, syscall.SIGTERM, false)
	again.WantNothingLeft(t)
}

// TestE2EShellInARunner controls jobs: Ctrl-Z stops the foreground job, and fg continues it. A
// shell does that through its standard error.
func TestE2EShellInARunner(t *testing.T) {
	b := bed.Open(t)
	b.Put(t, object{"id": "entered", "poolSize": 1})
	for _, command := range [][]string{
		{bed.Rockpool(t), "runner", "shell", "--env", "entered"},
		{bed.Rockpool(t), "run", "--env", "entered", "--tty", "--", "bash", "--norc", "-i"},
		{"sh", "-c", `exec "$0" runner shell --env entered 2>/dev/null`, bed.Rockpool(t)},
	} {
		s := onScreen(t, []string{"ROCKPOOL_SERVER=" + b.Address}, command[0], command[1:]...)
		s.sees(t, "$ ")
		// Not a shell: sh can't be stopped before its child's exec, and bash continues if its child has
		// just ended.
		s.types(t, "python3 -uc \"while not __import__('time').sleep(0.05): print('ti' + 'ck')\"\r")
		s.sees(t, "tick\r\n")
		s.types(t, "\x1a")
		s.sees(t, "Stopped")
		s.sees(t, "$ ")
		s.types(t, "fg\r")
		s.sees(t, "tick\r\n") // so it has the terminal again
		s.types(t, "\x03")
		s.sees(t, "$ ")
		s.types(t, "tty >&2; exit 5\r")
		s.sees(t, "/dev/")
		s.ends(t, 5)
	}
	for _, line := range []string{"shell", "bash --norc -i"} {
		if list := b.Works(t, "exec", "list", "--env", "entered", "--command", line, "--json"); !strings.Contains(list, fmt.Sprintf(`"commandLine": %q`, line)) {
			t.Errorf("%q isn't among %s", line, list)
		}
	}

	runner := b.Claim(t, "entered")
	s := onScreen(t, nil, bed.Rockpool(t), "runner", "shell", "--server", b.Address, runner, "--", "sh", "-c", "echo $$; read x; exit $x")
	s.types(t, "6\r")
	s.ends(t, 6)
	if got := b.Shell(t, runner, "echo here"); got.Stream("STDOUT") != "here\n" {
		t.Errorf("a shell that was left took its runner along: %+v", got)
	}
}

func TestE2EInteractiveWithoutATerminalIsRefused(t *testing.T) {
	b := bed.Open(t)
	_, errout, code := bed.RunProgram(t, strings.NewReader("x"), bed.Rockpool(t), "run", "--server", b.Address, "--env", "shell", "--tty", "--", "cat")
	if code != 2 || !strings.Contains(errout, "--stdin") {
		t.Errorf("%d %q", code, errout)
	}
}

// TestE2ECancelAsksForConfirmation on a terminal, before it cancels several executions. Ctrl-C
// means no.
func TestE2ECancelAsksForConfirmation(t *testing.T) {
	b := bed.Open(t)
	b.Put(t, object{"id": "asked", "poolSize": 1})
	user := "user=" + uuid.NewString()
	runner := strings.TrimSpace(b.Works(t, "runner", "claim", "asked", "--label", user))
	for range 2 {
		b.Start(t, object{"runnerId": runner, "shell": "exec sleep 1000"})
	}
	running := func() int {
		return strings.Count(b.Works(t, "exec", "list", "--label", user, "--state", "PENDING", "--state", "RUNNING", "--json"), `"id"`)
	}
	for _, answer := range []struct {
		keys       string
		code, left int
	}{{"\x03", 130, 2}, {"no\r", 130, 2}, {"y\r", 0, 0}} {
		s := onScreen(t, nil, bed.Rockpool(t), "exec", "cancel", "--server", b.Address, "--label", user)
		s.sees(t, "Cancel 2 executions? [y/N] ")
		s.types(t, answer.keys)
		s.ends(t, answer.code)
		if got := running(); got != answer.left {
			t.Errorf("%q: %d run, not %d", answer.keys, got, answer.left)
		}
	}
	if out, errs, code := b.Command(t, "", "exec", "cancel", "--label", user); code != 0 || out != "cancelled 0 executions\n" || errs != "" {
		t.Errorf("%d %q %q", code, out, errs)
	}
}
