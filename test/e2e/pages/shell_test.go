package pages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

// driver runs each script whose path it reads. A failed command ends it and prints its line. It is root
// already, and the machine needn't have sudo.
const driver = `
sudo() { "$@"; }
trap 'echo "$BASH_SOURCE: line $LINENO: exit code $?: $BASH_COMMAND" >&2' ERR
while IFS= read -r -u 3 script; do
	set -euo pipefail
	source "$script" </dev/null >"$script.out" 2>&1 3<&- 4>&-
	echo >&4
done`

// blockLimit is how long a block may run.
const blockLimit = 2 * time.Minute

// A shell is one bash that runs the scripts of a page.
type shell struct {
	cmd     *exec.Cmd
	scratch string        // has the scripts, and what they print
	scripts *os.File      // their paths go here
	done    chan struct{} // receives after each script
	ended   chan error
}

// startShell starts one in a directory. The command line before runs it.
func startShell(t *testing.T, dir string, environment []string, before ...string) *shell {
	t.Helper()
	s := &shell{scratch: t.TempDir(), done: make(chan struct{}, 1), ended: make(chan error, 1)}
	line := slices.Concat(before, []string{"bash", "--noprofile", "--norc", "-c", driver})
	s.cmd = exec.Command(line[0], line[1:]...)
	s.cmd.Dir, s.cmd.Env = dir, environment
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that what scripts leave can be ended
	paths, scripts, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, answer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.scripts, s.cmd.ExtraFiles = scripts, []*os.File{paths, answer}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = paths.Close(), answer.Close()
	go func() {
		defer answers.Close()
		for one := make([]byte, 1); ; {
			if _, err := io.ReadFull(answers, one); err != nil {
				return
			}
			s.done <- struct{}{}
		}
	}()
	go func() { s.ended <- s.cmd.Wait() }()
	t.Cleanup(func() { s.end(t) })
	return s
}

// run runs a script whose first line is a line of a page, and returns what it printed.
func (s *shell) run(page string, line int, script string) (printed string, err error) {
	dir, err := os.MkdirTemp(s.scratch, "")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, page)
	if err := os.WriteFile(path, []byte(strings.Repeat("\n", line-1)+script), 0o600); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), blockLimit)
	defer cancel()
	if _, err = fmt.Fprintln(s.scripts, path); err == nil {
		select {
		case <-s.done:
		case err = <-s.ended:
			s.ended <- err
			err = errors.Join(errors.New("the block failed"), err)
		case <-ctx.Done():
			_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
			err = fmt.Errorf("the block runs for more than %s", blockLimit)
		}
	}
	text, _ := os.ReadFile(path + ".out")
	return strings.ReplaceAll(string(text), path+":", page+":"), err
}

// end ends it and all that its scripts left running.
func (s *shell) end(t *testing.T) {
	_ = s.scripts.Close()
	<-s.ended
	wait.For(t, "the processes of the page have ended", func() bool {
		return errors.Is(syscall.Kill(-s.cmd.Process.Pid, syscall.SIGTERM), syscall.ESRCH)
	})
}

func TestE2EShellRunsScriptsInOneBash(t *testing.T) {
	need.Sandboxes(t)
	s := startShell(t, t.TempDir(), os.Environ())
	for _, test := range []struct {
		script, printed string
		fine            bool
	}{
		{"x=1; cd /; cat; echo out; echo err >&2", "out\nerr\n", true},
		{"sudo echo $x $PWD; sleep 1000 &\n", "1 /\n", true},
		{"false || echo no\nif false; then :; fi", "no\n", true},
		{"echo before\nfalse\necho after", "before\nx.md: line 5: exit code 1: false\n", false},
		{"echo after", "", false},
	} {
		if printed, err := s.run("x.md", 4, test.script); printed != test.printed || (err == nil) != test.fine {
			t.Errorf("%s: %q %v", test.script, printed, err)
		}
	}
}
