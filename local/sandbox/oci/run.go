package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rockpool/rockpool/agent"
)

// A Box is a sandbox for a runtime to make.
type Box struct {
	ID    string
	Dir   string // its directory, with all of the runtime's state; the caller deletes it
	Spec  *specs.Spec
	Files []*os.File // descriptors of the first process, from 3 on; none with GVisor

	// Linked: with GVisor, the network namespace of the process that RunGVisor passes to prepare
	// gets links there. With another runtime the links are added before the first process runs.
	Linked bool
}

// JoinCommand is the first argument of a program that must call [Join].
const JoinCommand = "join"

// joinDescriptor is the pipe that Join waits on.
const joinDescriptor = 3

// Join waits for a byte on the pipe, then executes the program in args in its place.
func Join(args []string) error {
	pipe := os.NewFile(joinDescriptor, "go")
	if got, err := io.ReadAll(io.LimitReader(pipe, 1)); err != nil || len(got) != 1 {
		return fmt.Errorf("the helper ended before it was ready: %w", err)
	}
	_ = pipe.Close()
	if len(args) == 0 {
		return errors.New("no program to execute")
	}
	return syscall.Exec(args[0], args, environment)
}

// RunGVisor makes a box with gVisor, and returns its process once the agent serves. It calls
// prepare with a process that has done nothing yet and that becomes the parent of everything of the
// box: gVisor's kernel, helpers and memory. After an error, something may be left in the cgroups
// and namespaces that prepare put the process into, and in the box's directory. The caller's thread
// must live until RunGVisor returns.
func (r Runtime) RunGVisor(ctx context.Context, box Box, prepare func(pid int) error) (pid int, err error) {
	if box.Linked {
		i := slices.IndexFunc(box.Spec.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.NetworkNamespace })
		if i < 0 {
			return 0, errors.New("the spec has no network namespace")
		}
		box.Spec.Linux.Namespaces[i].Path = "/proc/self/ns/net" // the new namespace, see Cloneflags below
	}
	if err := box.write(); err != nil {
		return 0, err
	}
	hold, release, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer hold.Close()
	defer release.Close()
	// Pipes, because runsc gives its standard streams to the sandbox's root user: a device file
	// would be the machine's.
	in, closed, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer in.Close()
	_ = closed.Close()
	out, theirs, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer out.Close()
	defer theirs.Close()
	args := append(r.flags(GVisor, box), "run", "--detach", "--bundle="+box.bundle(), "--pid-file="+box.pidFile(), box.ID)
	cmd := r.command(ctx, "/proc/self/exe", append([]string{JoinCommand, r.Path}, args...))
	cmd.Args[0] = "rockpool-sandbox"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, theirs, theirs
	cmd.ExtraFiles = []*os.File{hold}
	if box.Linked {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	// Only the box's processes hold theirs now, so firstLine notices when they end.
	_ = theirs.Close()
	_ = hold.Close()
	// The process waits for the byte in Join.
	if err := prepare(cmd.Process.Pid); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return 0, err
	}
	if _, err := release.Write([]byte{1}); err != nil {
		return 0, errors.Join(err, cmd.Wait())
	}
	if err := cmd.Wait(); err != nil {
		return 0, &Refusal{firstLine(out, time.Second), err}
	}
	if text := firstLine(out, readyWithin); text != strings.TrimSpace(agent.Ready) {
		return 0, &Refusal{text, errors.New("its agent didn't start to serve")}
	}
	return box.pid()
}

// readyWithin bounds how long a new agent may take to serve. runsc returns while the agent starts.
const readyWithin = 20 * time.Second

// firstLine returns the first line of output, or what came until the end or the timeout.
func firstLine(out *os.File, within time.Duration) string {
	_ = out.SetReadDeadline(time.Now().Add(within))
	var text []byte
	var buf [1024]byte
	for len(text) < 4096 && string(text) != agent.Ready {
		n, err := out.Read(buf[:])
		text = append(text, buf[:n]...)
		if err != nil {
			break
		}
	}
	return shorten(string(text))
}

// Run makes a box with a runtime that has runc's command line, and returns its process. The first
// process runs after check has returned nil for it.
func (r Runtime) Run(ctx context.Context, name string, box Box, check func(pid int) error) (pid int, err error) {
	if err := box.write(); err != nil {
		return 0, err
	}
	flags := r.flags(name, box)
	cmd := r.command(ctx, r.Path, append(flags, "create", "--bundle="+box.bundle(), "--pid-file="+box.pidFile(),
		"--preserve-fds="+strconv.Itoa(len(box.Files)), box.ID))
	cmd.ExtraFiles = box.Files
	if err := runLogged(cmd, filepath.Join(box.Dir, "said")); err != nil {
		return 0, err
	}
	if pid, err = box.pid(); err != nil {
		return 0, err
	}
	if err := check(pid); err != nil {
		return 0, err
	}
	return pid, runLogged(r.command(ctx, r.Path, append(flags, "start", box.ID)), filepath.Join(box.Dir, "said"))
}

// runLogged runs a command. Its error contains the command's log, which goes through a file: a pipe
// would be held open by what the command leaves running.
func runLogged(cmd *exec.Cmd, at string) error {
	file, err := os.OpenFile(at, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = null, null, null
	cmd.Args = append([]string{cmd.Args[0], "--log=" + at}, cmd.Args[1:]...)
	if err := cmd.Run(); err != nil {
		text, _ := io.ReadAll(io.LimitReader(file, 4096))
		return &Refusal{shorten(string(text)), err}
	}
	return nil
}

// command returns a command that ends when the caller's thread ends.
func (r Runtime) command(ctx context.Context, path string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = environment, "/", time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// A Refusal is a runtime's failure to make a box, with its output.
type Refusal struct {
	Output string
	Err    error
}

func (e *Refusal) Error() string {
	if e.Output == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("%v: %s", e.Err, e.Output)
}

func (e *Refusal) Unwrap() error { return e.Err }

func (b Box) state() string   { return filepath.Join(b.Dir, "state") }
func (b Box) bundle() string  { return filepath.Join(b.Dir, "bundle") }
func (b Box) pidFile() string { return filepath.Join(b.Dir, "pid") }

func (b Box) write() error {
	text, err := json.Marshal(b.Spec)
	if err != nil {
		return err
	}
	for _, dir := range []string{b.Dir, b.state(), b.bundle()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(b.bundle(), "config.json"), text, 0o600)
}

func (b Box) pid() (int, error) {
	text, err := os.ReadFile(b.pidFile())
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("the runtime wrote the process id %q", text)
	}
	return pid, nil
}
