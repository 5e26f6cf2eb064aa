package maker

import (
	"bytes"
	"errors"

	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/test/need"
)

// buildInit compiles init as the Makefile does.
func buildInit(t *testing.T) string {
	t.Helper()
	at := filepath.Join(t.TempDir(), "init")
	flags := strings.Fields("-std=gnu17 -O2 -static -nostdlib -ffreestanding -fno-stack-protector -fno-tree-loop-distribute-patterns -fcf-protection=none -Wl,--build-id=none,-z,noseparate-code -o")
	if out, err := exec.Command("cc", append(flags, at, "init/init.c")...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return at
}

// A cell is init with a command, in namespaces of its own, with an empty file system in memory at /workspace.
type cell struct {
	*testing.T
	plan   *Plan
	cmd    *exec.Cmd
	socket *os.File // the agent's end of the socket
	maker  *os.File // the maker's end of the pipe
	out    bytes.Buffer
	copied chan error
	waits  bool // next returns agent.CellPrepared, too
}

const cellUser = 1000

// startCell starts init, which waits for agent.CellGo before it starts the command.
func startCell(t *testing.T, c Command) *cell {
	t.Helper()
	need.Sandboxes(t)
	root := t.TempDir()
	workspace := filepath.Join(root, "workspace")
	if err := os.Mkdir(workspace, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(workspace, cellUser, cellUser); err != nil {
		t.Fatal(err)
	}
	for dir := root; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		_ = os.Chmod(dir, 0o755)
	}
	c.Dir, c.User, c.Group = workspace, cellUser, cellUser
	c.Groups = append(c.Groups, cellUser)
	b := &cell{T: t, copied: make(chan error, 1)}
	var err error
	if b.plan, err = NewPlan(c); err != nil {
		t.Fatal(err)
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(ends[1]), "socket")
	b.socket = os.NewFile(uintptr(ends[0]), "socket")
	maker, report, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	b.maker = maker
	b.cmd = exec.Command(buildInit(t))
	b.cmd.Stdout, b.cmd.Stderr = stdout, stdout
	b.cmd.ExtraFiles = []*os.File{theirs, b.plan.File, report}
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET}
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{theirs, b.plan.File, report, stdout} {
		_ = f.Close()
	}
	go func() {
		_, err := io.Copy(&b.out, out)
		b.copied <- err
	}()
	t.Cleanup(func() {
		_ = b.socket.Close()
		_ = b.cmd.Wait()
	})
	return b
}

// next returns the agent's and the maker's next report, which must be equal. It starts the command when init
// waits for that. An order before would make the kernel reset the socket if init fails.
func (b *cell) next() agent.CellReport {
	b.Helper()
	var got [2]agent.CellReport
	for i, from := range []*os.File{b.socket, b.maker} {
		text := make([]byte, agent.CellReportSize)
		n, err := from.Read(text)
		if err == nil {
			got[i], err = agent.ParseCellReport(text[:n])
		}
		if err != nil {
			b.Fatalf("no report: %v (status %v, output %q)", err, b.cmd.ProcessState, b.out.String())
		}
	}
	if got[0].Kind == agent.CellPrepared && !b.waits {
		if _, err := b.socket.Write([]byte{agent.CellGo}); err != nil {
			b.Fatal(err)
		}
		return b.next()
	}
	if got[0] != got[1] {
		b.Errorf("the agent got %+v, the maker %+v", got[0], got[1])
	}
	return got[0]
}

// ended waits for the end of init, and returns the output.
func (b *cell) ended() string {
	b.Helper()
	if err := b.cmd.Wait(); err != nil && b.cmd.ProcessState.ExitCode() > 250 {
		b.Logf("init: %v", err)
	}
	if err := <-b.copied; err != nil {
		b.Error(err)
	}
	return b.out.String()
}

func shell(script string) Command {
	return Command{Candidates: []string{"/nonexistent/sh", "/bin/sh"}, Args: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}}
}

func TestInitRunsACommand(t *testing.T) {
	c := shell("id -u; id -g; id -G; pwd; cat dir/a/text; stat -c '%U %a %n' dir dir/a dir/a/text run; ./run; echo $$; ls /proc/self/fd | wc -l; exit 7")
	c.Files = []File{
		{Path: "dir/a/text", Content: []byte("hello\n")},
		{Path: "run", Mode: 0o755, Content: []byte("#!/bin/sh\necho from a file\n")},
		{Path: "empty/deep", Directory: true},
	}
	b := startCell(t, c)
	if r := b.next(); r.Kind != agent.CellStarted {
		t.Fatalf("%+v: %v", r, b.plan.Failure(r))
	}
	r := b.next()
	if r.Kind != agent.CellEnded || r.Status.ExitStatus() != 7 || r.Resident == 0 {
		t.Errorf("%+v, want an exit with code 7", r)
	}
	out := b.ended()
	for _, want := range []string{"1000\n1000\n1000\n", "/workspace\n", "hello\n", " 755 dir\n", " 755 dir/a\n", " 644 dir/a/text\n", " 755 run\n", "from a file\n", "\n2\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q lacks %q", out, want)
		}
	}
}

func TestInitNamesFailures(t *testing.T) {
	for name, test := range map[string]struct {
		files      []File
		candidates []string
		kind       agent.CellReportKind
		file       string
		errno      syscall.Errno
	}{
		"no command":            {nil, []string{"/nonexistent/a", "/nonexistent/b"}, agent.CellUnstarted, "", unix.ENOENT},
		"not executable":        {nil, []string{"/nonexistent/a", "/etc/passwd"}, agent.CellUnstarted, "", unix.EACCES},
		"a file as a directory": {[]File{{Path: "a"}, {Path: "a/b"}}, nil, agent.CellUnprepared, "a", unix.ENOTDIR},
		"a directory as a file": {[]File{{Path: "a/b"}, {Path: "a"}}, nil, agent.CellUnprepared, "a", unix.EISDIR},
	} {
		t.Run(name, func(t *testing.T) {
			c := shell("echo started")
			c.Files = test.files
			if test.candidates != nil {
				c.Candidates = test.candidates
			}
			b := startCell(t, c)
			r := b.next()
			f := b.plan.Failure(r)
			if r.Kind != test.kind || f == nil || f.File() != test.file || !errors.Is(f, test.errno) {
				t.Errorf("got %+v: %v, want %d, file %q, %v", r, f, test.kind, test.file, test.errno)
			}
			if out := b.ended(); out != "" {
				t.Errorf("it printed %q", out)
			}
		})
	}
}

func TestPlansStayInTheWorkspace(t *testing.T) {
	for _, at := range []string{"../a", "a/../../b", "/etc/x", "", ".", "..", "a//b", "a/./b", "a/"} {
		if p, err := NewPlan(Command{Files: []File{{Path: at}}}); err == nil && at != "." {
			_ = p.File.Close()
			t.Errorf("%q is accepted", at)
		}
	}
}

func TestCellEndsWithItsCommand(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		order  string // after the start
		signal syscall.Signal
		within time.Duration
	}{
		"child in another session": {"setsid sleep 1000 >/dev/null 2>&1 </dev/null & exit 0", "", 0, 10 * time.Second},
		"child holds the output":   {"sleep 1000 & exit 0", "", 0, 10 * time.Second},
		"signal":                   {"sleep 1000", "s\x0f", unix.SIGTERM, 10 * time.Second},
		"kill":                     {"trap '' TERM; setsid sleep 1000 & sleep 1000", "k", unix.SIGKILL, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			b := startCell(t, shell(test.script))
			if r := b.next(); r.Kind != agent.CellStarted {
				t.Fatalf("%+v: %v", r, b.plan.Failure(r))
			}
			if test.order != "" {
				if _, err := b.socket.WriteString(test.order); err != nil {
					t.Fatal(err)
				}
			}
			r := b.next()
			if r.Kind != agent.CellEnded || r.Status.Signaled() != (test.signal != 0) || test.signal != 0 && r.Status.Signal() != test.signal {
				t.Errorf("got %+v, want signal %v", r, test.signal)
			}
			b.ended()
		})
	}
}

// A cell can't outlive its agent, whose end closes the socket.
func TestCellEndsWithItsAgent(t *testing.T) {
	b := startCell(t, shell("trap '' TERM HUP; echo started; sleep 1000"))
	if r := b.next(); r.Kind != agent.CellStarted {
		t.Fatalf("%+v: %v", r, b.plan.Failure(r))
	}
	_ = b.socket.Close()
	b.ended()
}

// An agent that the cell wasn't handed to has started nothing.
func TestNothingStartsWithoutTheAgent(t *testing.T) {
	b := startCell(t, shell("echo started"))
	b.waits = true
	if r := b.next(); r.Kind != agent.CellPrepared {
		t.Fatalf("%+v: %v", r, b.plan.Failure(r))
	}
	_ = b.socket.Close()
	if out := b.ended(); out != "" {
		t.Errorf("it printed %q", out)
	}
}
