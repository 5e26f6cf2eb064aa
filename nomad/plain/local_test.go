package plain_test

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
	"sync"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"github.com/google/uuid"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/nomad/plain"
	"github.com/rockpool/rockpool/test/need"
)

// Slow: three shells run each test, with and without the loss of the last answer; with Nomad each driver does, too.

// A machine is an Exec on this machine, with the faults of those that there are.
type machine struct {
	dir   string // the task's
	shell []string
	path  string
	// hasty: what was printed is thrown away once the command has ended, as
	// Nomad's docker driver does.
	hasty bool
	// before is called with every command, and fails it.
	before func(kind string, c plain.Command) error
	// during's context breaks the exec when it ends, and leaves the command.
	during func(kind string) context.Context
	// answers may lose what an exec prints.
	answers func(kind string, to io.Writer) io.Writer
	room    string // for FIFOs

	mu       sync.Mutex // guards what follows
	commands []*exec.Cmd
	counts   map[string]int
}

// errFalseExit makes an exec end with 0 at once.
var errFalseExit = errors.New("a false exit")

// Exec implements plain.Exec. As with Nomad, the end of ctx leaves the command
// where it is, and stdin is waited for.
func (m *machine) Exec(ctx context.Context, c plain.Command) (int, error) {
	kind := c.Argv[3][len(c.Argv[3])-3:]
	m.mu.Lock()
	if m.counts == nil {
		m.counts = map[string]int{}
	}
	m.counts[kind]++
	m.mu.Unlock()
	if m.before != nil {
		if err := m.before(kind, c); err == errFalseExit {
			return 0, nil
		} else if err != nil {
			return -2, err
		}
	}
	if m.during != nil {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(m.during(kind), func() { cancel(errors.New("the connection broke")) })()
	}
	if m.answers != nil {
		c.Stdout = m.answers(kind, c.Stdout)
	}
	cmd := exec.Command(m.shell[0], append(append([]string(nil), m.shell[1:]...), c.Argv[1:]...)...)
	cmd.Dir = m.dir
	cmd.Env = []string{"PATH=" + m.path, "NOMAD_TASK_DIR=" + m.dir, "NOMAD_SECRET=hidden", "TMPDIR=" + m.room}
	if c.Terminal {
		return m.terminal(ctx, cmd, c)
	}
	return m.pipes(ctx, cmd, c)
}

// count returns how many execs of a kind there were.
func (m *machine) count(kind string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts[kind]
}

func (m *machine) remember(cmd *exec.Cmd) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.commands = append(m.commands, cmd)
}

// none reports whether no command of a kind runs.
func (m *machine) none(kind string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !slices.ContainsFunc(m.commands, func(cmd *exec.Cmd) bool {
		return strings.HasSuffix(cmd.Args[len(m.shell)+2], kind) && lives(cmd.Process.Pid)
	})
}

// end ends what is left of all commands, as the end of a task does, and says
// whether there was anything.
func (m *machine) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, cmd := range m.commands {
		_ = cmd.Process.Kill()
	}
}

// A gate passes on what is written until it is shut.
type gate struct {
	w  io.Writer
	mu sync.Mutex
	no bool
}

func (g *gate) Write(b []byte) (int, error) {
	g.mu.Lock()
	no := g.no
	g.mu.Unlock()
	if no {
		return 0, os.ErrClosed
	}
	return g.w.Write(b)
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.no = true
}

func (m *machine) pipes(ctx context.Context, cmd *exec.Cmd, c plain.Command) (int, error) {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return -2, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	outs := [2]*gate{{w: c.Stdout}, {w: c.Stderr}}
	var readers [2]*os.File
	var writers [2]*os.File
	for i := range readers {
		if readers[i], writers[i], err = os.Pipe(); err != nil {
			return -2, err
		}
	}
	cmd.Stdout, cmd.Stderr = writers[0], writers[1]
	if err := cmd.Start(); err != nil {
		return -2, err
	}
	m.remember(cmd)
	_, _ = writers[0].Close(), writers[1].Close()
	var copies sync.WaitGroup
	for i := range readers {
		copies.Go(func() {
			_, _ = io.Copy(outs[i], readers[i])
			_ = readers[i].Close()
		})
	}
	go func() { // ends with the Exec's stdin, which its caller ends
		_, _ = io.Copy(stdin, c.Stdin)
		_ = stdin.Close()
	}()
	ended := make(chan int, 1)
	go func() {
		_ = cmd.Wait()
		if m.hasty {
			_, _ = readers[0].Close(), readers[1].Close()
			outs[0].shut()
			outs[1].shut()
		} else {
			copies.Wait()
		}
		ended <- codeOf(cmd)
	}()
	return result(ctx, ended, func() {
		_, _ = readers[0].Close(), readers[1].Close()
		outs[0].shut()
		outs[1].shut()
	})
}

func result(ctx context.Context, ended <-chan int, leave func()) (int, error) {
	select {
	case code := <-ended:
		return code, nil
	case <-ctx.Done():
		leave()
		return -2, context.Cause(ctx)
	}
}

func codeOf(cmd *exec.Cmd) int {
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

func (m *machine) terminal(ctx context.Context, cmd *exec.Cmd, c plain.Command) (int, error) {
	master, err := pty.Start(cmd)
	if err != nil {
		return -2, err
	}
	m.remember(cmd)
	out := &gate{w: c.Stdout}
	copied := make(chan struct{})
	go func() {
		_, _ = io.Copy(out, master)
		close(copied)
	}()
	go func() { _, _ = io.Copy(master, c.Stdin) }()
	done := make(chan struct{})
	resizing := make(chan struct{})
	defer func() {
		close(done)
		<-resizing
		_ = master.Close()
	}()
	go func() {
		defer close(resizing)
		for {
			select {
			case size := <-c.Resize:
				_ = pty.Setsize(master, &pty.Winsize{Rows: uint16(size.Rows), Cols: uint16(size.Columns)})
			case <-done:
				return
			}
		}
	}()
	ended := make(chan int, 1)
	go func() {
		_ = cmd.Wait()
		if !m.hasty {
			<-copied
		}
		ended <- codeOf(cmd)
	}()
	return result(ctx, ended, out.shut)
}

// shells are the machines that the tests run on: what an image may have. These tests
// take a minute together, and need programs that not every machine has.
func shells(t testing.TB) map[string]*machine {
	t.Helper()
	need.Sandboxes(t)
	machines := map[string]*machine{}
	for name, shell := range map[string][]string{"dash": {"dash"}, "bash": {"bash", "--posix"}, "busybox": {"busybox", "sh"}} {
		file, err := exec.LookPath(shell[0])
		if err != nil {
			t.Fatalf("these tests need dash, bash and busybox: install the packages of these names (%v)", err)
		}
		shell[0] = file
		machines[name] = &machine{shell: shell, path: "/usr/local/bin:/usr/bin:/bin"}
		if name == "busybox" {
			machines[name].path = applets(t, file)
		}
	}
	return machines
}

// applets makes a directory of busybox's programs, as its image has it.
func applets(t testing.TB, busybox string, only ...string) string {
	t.Helper()
	dir := t.TempDir()
	all := []string{
		"setsid", "env", "cat", "grep", "mkfifo", "stty", "sleep", "find", "stat", "tail", "mv", "rm", "mkdir", "chmod",
		"readlink", "head", "dd", "sh", "true", "false", "echo", "ln", "touch", "seq", "printf", "kill", "ls", "wc", "yes", "tty", "od",
	}
	if len(only) > 0 {
		all = only
	}
	for _, name := range all {
		if err := os.Symlink(busybox, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// onEach runs a test on each machine, with and without the haste.
func onEach(t *testing.T, test func(t *testing.T, b *bed)) {
	for name, m := range shells(t) {
		for _, hasty := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s hasty=%v", name, hasty), func(t *testing.T) {
				t.Parallel()
				copied := &machine{shell: m.shell, path: m.path, hasty: hasty}
				test(t, newBed(t, copied))
			})
		}
	}
}

// A bed is a runner on a machine.
type bed struct {
	t       testing.TB
	machine *machine // nil: Nomad
	exec    plain.Exec
	name    string
	runner  *plain.Runner
	env     []string
	reports reports
}

type reports struct {
	mu  sync.Mutex
	all []error
}

func (r *reports) add(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, err)
}

// has reports whether there is a report with this text.
func (r *reports) has(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.all, func(err error) bool { return strings.Contains(err.Error(), text) })
}

func newBed(t testing.TB, m *machine) *bed {
	t.Helper()
	m.dir, m.room = t.TempDir(), t.TempDir()
	b := &bed{t: t, machine: m, exec: m, name: filepath.Base(filepath.Dir(m.dir)) + "-" + filepath.Base(m.dir), env: []string{"PATH=" + m.path}}
	t.Cleanup(m.end)
	b.open()
	t.Cleanup(func() { b.runner.Close() })
	return b
}

func (b *bed) open() {
	b.t.Helper()
	runner, err := plain.Open(context.Background(), b.exec, plain.Config{Name: b.name, Report: b.reports.add})
	if err != nil {
		b.t.Fatal(err)
	}
	b.runner = runner
	b.t.Cleanup(func() {
		b.reports.mu.Lock()
		defer b.reports.mu.Unlock()
		if b.t.Failed() {
			b.t.Log(b.reports.all)
		}
	})
}

func (b *bed) start(start agent.Start) (*agent.Session, error) {
	b.t.Helper()
	conn, err := b.runner.Dial(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	if start.ID == "" {
		start.ID = fresh()
	}
	if start.Env == nil {
		start.Env = b.env
	}
	return agent.StartExecution(b.t.Context(), conn, start)
}

// fresh returns an id that no execution has.
func fresh() string { return uuid.NewString() }

// begin starts a command that must start.
func (b *bed) begin(start agent.Start) *agent.Session {
	b.t.Helper()
	s, err := b.start(start)
	if err != nil {
		b.t.Fatalf("start %q: %v", start.Argv, err)
	}
	b.t.Cleanup(func() { _ = s.Close() })
	return s
}

// outcome is what came of an execution.
type outcome struct {
	stdout, stderr string
	exit           agent.Exit
	err            error // of the stream, in place of the exit
}

// follow reads to the end.
func follow(s *agent.Session) (o outcome) {
	for {
		event, err := s.Next()
		if err != nil {
			o.err = err
			return o
		}
		switch event.Kind {
		case agent.KindOutput:
			if event.Stream == 1 {
				o.stdout += string(event.Data)
			} else {
				o.stderr += string(event.Data)
			}
			_ = s.Ack(event.Offset + int64(len(event.Data)))
		case agent.KindExited:
			o.exit = event.Exit
			_ = s.Settled()
			_ = s.Close()
			return o
		}
	}
}

// sh runs a shell's command line.
func (b *bed) sh(line string) outcome {
	b.t.Helper()
	return follow(b.begin(agent.Start{Argv: []string{"sh", "-c", line}}))
}

// refused returns the agent's refusal.
func refused(t testing.TB, err error) *agent.Error {
	t.Helper()
	var e *agent.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v, want an agent.Error", err)
	}
	return e
}
