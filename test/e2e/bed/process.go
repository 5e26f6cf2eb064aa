package bed

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/rockpool/rockpool/cli"
	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/repository"
	"github.com/rockpool/rockpool/test/wait"
)

// Rockpool returns the path of the built program.
func Rockpool(t testing.TB) string {
	t.Helper()
	need.Program(t)
	path := Source(t, "bin/rockpool")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("this test runs bin/rockpool: run make build first (%v)", err)
	}
	return path
}

// Source returns the path of a source file.
func Source(t testing.TB, name string) string {
	t.Helper()
	root, err := repository.Root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, name)
}

// RunCLI runs a command of the CLI in this process.
func RunCLI(arguments []string, in io.Reader, out, errs io.Writer) int {
	return cli.Execute(&struct{ cli.Commands }{}, "", arguments, command.Streams{In: in, Out: out, Err: errs}, kong.Bind(cli.Private{}))
}

// RunProgram runs a program to its end.
func RunProgram(t testing.TB, stdin io.Reader, name string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errout bytes.Buffer
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errout
	var failed *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return out.String(), errout.String(), cmd.ProcessState.ExitCode()
}

var waitingLine = regexp.MustCompile(`(?m)^rockpool: waiting for a runner of .*\n`)

// WithoutWaitingLine removes the line about waiting for a runner from a command's stderr. The line depends on
// the machine's load.
func WithoutWaitingLine(stderr string) string { return waitingLine.ReplaceAllString(stderr, "") }

// A Process is a running bin/rockpool serve, or a command that runs it, as a user starts it.
type Process struct {
	Bed
	Cmd     *exec.Cmd
	Cgroups string
	Ready   string // its stdout until it was ready
	Stderr  KeptLog
}

var readyURL = regexp.MustCompile(`rockpool is ready: (https?://\S+)/graphql`)

// Serve starts a command and waits until it prints that it is ready.
func Serve(t testing.TB, data string, name string, args ...string) *Process {
	t.Helper()
	return ServeTo(t, func(stdout io.Reader) { _, _ = io.Copy(io.Discard, stdout) }, data, name, args...)
}

// ServeTo is Serve. rest gets the command's later stdout, and may leave it unread.
func ServeTo(t testing.TB, rest func(stdout io.Reader), data string, name string, args ...string) *Process {
	t.Helper()
	p := &Process{Cmd: exec.Command(name, args...), Cgroups: CgroupsOf(data)}
	Explain(t, &p.Stderr)
	p.Cmd.Env = append(os.Environ(), "ROCKPOOL_LISTEN=127.0.0.1:0", "ROCKPOOL_ON_STOP=remove", "ROCKPOOL_CGROUP_PARENT="+p.Cgroups,
		"ROCKPOOL_STOP_WITHIN="+wait.Limit.String()) // a busy machine may need more time than the default
	p.Cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that signals to its group don't reach this process
	p.Cmd.Stderr = &p.Stderr
	stdout, err := p.Cmd.StdoutPipe()
	if err == nil {
		err = p.Cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.Cmd.ProcessState == nil {
			_ = p.Cmd.Process.Signal(syscall.SIGTERM)
			_ = p.Cmd.Wait()
		}
	})
	hangs := time.AfterFunc(wait.Limit, func() { _ = p.Cmd.Process.Kill() })
	defer hangs.Stop()
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		p.Ready += lines.Text() + "\n"
		if m := readyURL.FindStringSubmatch(lines.Text()); m != nil {
			p.Bed = Bed{Client: client.New(m[1]), Address: m[1], Data: data}
			go rest(stdout)
			t.Cleanup(p.CloseIdle)
			t.Cleanup(func() {
				if p.Cmd.ProcessState == nil {
					p.CollectEvents(t)
				}
			})
			return p
		}
	}
	_ = p.Cmd.Wait()
	t.Fatalf("the server ended before it was ready: %s", p.Stderr.String())
	return nil
}

// ServeBinary starts a server on a data directory and waits until it is ready.
func ServeBinary(t testing.TB, data string) *Process {
	t.Helper()
	return Serve(t, data, Rockpool(t), "serve", "--data", data)
}

// End sends a signal to the server, or to its whole group, and waits for its end. After SIGTERM its
// exit code must be 0.
func (p *Process) End(t testing.TB, signal syscall.Signal, group bool) {
	t.Helper()
	p.CollectEvents(t)
	pid := p.Cmd.Process.Pid
	if group {
		pid = -pid
	}
	if err := syscall.Kill(pid, signal); err != nil {
		t.Fatal(err)
	}
	hangs := time.AfterFunc(wait.Limit, func() { _ = p.Cmd.Process.Kill() })
	defer hangs.Stop()
	if err := p.Cmd.Wait(); err != nil && signal == syscall.SIGTERM && !group {
		t.Errorf("the server ended with %v", err)
	}
}

// WantNothingLeft fails the test if the server left anything on the machine.
func (p *Process) WantNothingLeft(t testing.TB) {
	t.Helper()
	if left := Leftovers(p.Data, p.Cgroups); len(left) > 0 {
		t.Errorf("the server left %q", left)
	}
}

// DataDir returns a data directory. No runner of it outlives the test, even if the test fails.
func DataDir(t testing.TB) string {
	t.Helper()
	need.Sandboxes(t)
	data := filepath.Join(t.TempDir(), "data")
	t.Cleanup(func() {
		if t.Failed() && len(Leftovers(data, CgroupsOf(data))) > 0 {
			p := ServeBinary(t, data)
			p.End(t, syscall.SIGTERM, false)
		}
	})
	return data
}

// CgroupsOf returns the cgroup above those of a test's servers. Its name contains the name of the test,
// which must have at most 42 characters: a cgroup has at most 64.
func CgroupsOf(data string) string {
	name := strings.ReplaceAll(strings.TrimPrefix(filepath.Dir(data), os.TempDir()+"/"), "/", "-")
	return "rockpool/" + strings.TrimPrefix(name, "-") + "-" + strconv.Itoa(os.Getpid())
}

// ClaimUnreleased claims a runner that isn't released at the test's end.
func (b Bed) ClaimUnreleased(t testing.TB, environment string) string {
	t.Helper()
	runner, err := client.Claim(t.Context(), b, client.ClaimRunnerInput{EnvironmentId: environment, WaitFor: new(int(wait.Limit.Seconds()))})
	if err != nil {
		t.Fatalf("claim a runner of %s: %v", environment, err)
	}
	claimed(t, runner)
	return runner
}

// Makers returns the processes that make sandboxes for the server with this data directory.
func Makers(data string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, file := range files {
		exe, _ := os.Readlink(file)
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil && within(exe, data) && strings.HasPrefix(string(line), "rockpool-sandbox\x00maker\x00") {
			pids = append(pids, pid)
		}
	}
	return pids
}

func within(path, dir string) bool { return strings.HasPrefix(path, dir+"/") }
