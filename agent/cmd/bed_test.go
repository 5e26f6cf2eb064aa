package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/cmd/namespaces"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

// Slow: it measures processor time, and each test has an agent with its own namespaces and groups.

// The tests run the real program as PID 1 in namespaces like those of a local runner. There is a
// user namespace of 65536 ids, a read-only root, a workspace of 16 MiB, and six capabilities.

// bedInit is set for the test binary that builds the bed and becomes the agent.
const bedInit = "ROCKPOOL_AGENT_BED"

// bedFlags has further flags of the agent.
const bedFlags = "ROCKPOOL_AGENT_BED_FLAGS"

var agentBinary string // built once by TestMain

func TestMain(m *testing.M) {
	if dir := os.Getenv(bedInit); dir != "" {
		runtime.LockOSThread()
		fmt.Fprintln(os.Stderr, "bed:", becomeAgent(dir))
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "agent-test")
	if err != nil {
		panic(err)
	}
	agentBinary = filepath.Join(dir, "agent")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", agentBinary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the agent: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// becomeAgent builds the root below dir and executes the agent in it.
func becomeAgent(dir string) error {
	// The parent puts us into a cgroup, then lets us go.
	if _, err := os.NewFile(4, "gate").Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("gate: %w", err)
	}
	unix.CloseOnExec(4)
	if strings.Contains(os.Getenv(bedFlags), unifiedGroups) {
		if err := unix.Dup2(5, 4); err != nil { // where the agent expects the groups
			return fmt.Errorf("groups: %w", err)
		}
		_ = unix.Close(5)
	}
	must := func(err error, what string) {
		if err != nil {
			panic(fmt.Sprintf("bed: %s: %v", what, err))
		}
	}
	root := filepath.Join(dir, "root")
	must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), "private")
	must(unix.Mount("tmpfs", root, "tmpfs", 0, "mode=755"), "root")
	for _, d := range []string{"usr", "proc", "tmp", "workspace", "dev", "etc", "old"} {
		must(os.Mkdir(root+"/"+d, 0o755), d)
	}
	for _, link := range []string{"bin", "sbin", "lib", "lib64"} {
		must(os.Symlink("usr/"+link, root+"/"+link), link)
	}
	must(os.WriteFile(root+"/etc/passwd", []byte("root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/workspace:/bin/sh\n"), 0o644), "passwd")
	must(os.WriteFile(root+"/etc/group", []byte("root:x:0:\nuser:x:1000:\n"), 0o644), "group")
	must(unix.Mount("/usr", root+"/usr", "", unix.MS_BIND|unix.MS_REC, ""), "usr")
	must(unix.Mount("", root+"/usr", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""), "usr read-only")
	must(unix.Mount("proc", root+"/proc", "proc", 0, ""), "proc")
	must(unix.Mount("tmpfs", root+"/tmp", "tmpfs", 0, "mode=1777,size=16m"), "tmp")
	must(unix.Mount("tmpfs", root+"/workspace", "tmpfs", 0, "mode=1777,size=16m"), "workspace")
	for _, device := range []string{"null", "zero", "full", "urandom"} {
		must(os.WriteFile(root+"/dev/"+device, nil, 0o666), device)
		must(unix.Mount("/dev/"+device, root+"/dev/"+device, "", unix.MS_BIND, ""), device)
	}
	must(os.WriteFile(root+"/dev/tty", nil, 0o666), "tty")
	must(unix.Mount("/dev/tty", root+"/dev/tty", "", unix.MS_BIND, ""), "tty")
	must(os.Mkdir(root+"/dev/pts", 0o755), "pts")
	must(unix.Mount("devpts", root+"/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5"), "devpts")
	must(os.Symlink("pts/ptmx", root+"/dev/ptmx"), "ptmx")
	must(os.WriteFile(root+"/agent", nil, 0o755), "agent")
	must(unix.Mount(filepath.Join(dir, "agent"), root+"/agent", "", unix.MS_BIND, ""), "agent")
	must(unix.PivotRoot(root, root+"/old"), "pivot")
	must(os.Chdir("/"), "chdir")
	must(unix.Unmount("/old", unix.MNT_DETACH), "old")
	must(unix.Mount("", "/", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""), "read-only")
	must(namespaces.RaiseLoopback(), "lo")
	keep := map[uintptr]bool{unix.CAP_SETUID: true, unix.CAP_SETGID: true, unix.CAP_KILL: true, unix.CAP_SETPCAP: true,
		unix.CAP_CHOWN: true, unix.CAP_DAC_OVERRIDE: true, unix.CAP_FOWNER: true}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0); err == nil && has == 1 && !keep[c] {
			must(unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0), "drop")
		}
	}
	argv := append([]string{"/agent", "serve", "--fd", "3", "--open-files", strconv.Itoa(bedFiles)}, strings.Fields(os.Getenv(bedFlags))...)
	return unix.Exec("/agent", argv, []string{"PATH=/usr/bin"})
}

// bedFiles is the limit of open files of a process of the bed.
const bedFiles = 512

// bedRoot is the user outside that is root in the bed.
const bedRoot = 1_000_000_000

// unifiedGroups are the flags of an agent whose commands have control groups of version 2. They
// have no controllers, so that these groups can be made on each machine.
const unifiedGroups = "--groups unified"

// A bed is a running agent.
type bed struct {
	socket string
	pid    int             // the agent's, outside
	cgroup string          // that limits its processes; "" if there is none
	ended  <-chan struct{} // a task's; closed then
}

// newBed starts an agent whose runner has this limit of processes; 0 means none.
func newBed(t testing.TB, processes int, flags ...string) *bed {
	t.Helper()
	need.Sandboxes(t)
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Chmod(filepath.Dir(dir), 0o755))
	must(os.Chmod(dir, 0o755))
	must(os.Mkdir(filepath.Join(dir, "root"), 0o755))
	must(os.Link(agentBinary, filepath.Join(dir, "agent")))
	b := &bed{socket: filepath.Join(dir, "s")}
	listener, err := net.Listen("unix", b.socket)
	must(err)
	file, err := listener.(*net.UnixListener).File()
	must(err)
	gate, open, err := os.Pipe()
	must(err)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{bedInit + "=" + dir, bedFlags + "=" + strings.Join(flags, " ")}
	cmd.Stderr = testWriter{t}
	cmd.ExtraFiles = []*os.File{file, gate}
	groups := ""
	if slices.Contains(flags, unifiedGroups) {
		groups = makeGroups(t, bedRoot)
		dir, err := os.Open(filepath.Join(groups, "run"))
		must(err)
		defer func() { must(dir.Close()) }()
		cmd.ExtraFiles = append(cmd.ExtraFiles, dir)
	}
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: bedRoot, Size: 65536}}
	// The test binary and the directories of the bed must be reachable for the mapped root.
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS,
		UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true,
		Credential: &syscall.Credential{}, Pdeathsig: syscall.SIGKILL,
	}
	runtime.LockOSThread() // the parent-death signal is the thread's
	t.Cleanup(runtime.UnlockOSThread)
	must(cmd.Start())
	b.pid = cmd.Process.Pid
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if b.cgroup != "" {
			wait.For(t, "its cgroup is removed", func() bool { return os.Remove(b.cgroup) == nil }) // what ended may still be in it
		}
	})
	if processes > 0 {
		b.limit(t, processes)
	}
	if groups != "" {
		must(os.WriteFile(filepath.Join(groups, "agent", "cgroup.procs"), []byte(strconv.Itoa(b.pid)), 0))
		if processes > 0 { // in place of the limit of the commands' group, which leaves room for the agent's threads
			commands := uint64(processes - 32)
			must(unix.Prlimit(b.pid, unix.RLIMIT_NPROC, &unix.Rlimit{Cur: commands, Max: commands}, nil))
		}
	}
	_, err = open.Write([]byte{0})
	must(err)
	for _, f := range []io.Closer{open, gate, file, listener.(*net.UnixListener)} {
		if l, ok := f.(*net.UnixListener); ok {
			l.SetUnlinkOnClose(false)
		}
		must(f.Close())
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
	defer cancel()
	if _, err := agent.PingAgent(ctx, b.dial(t)); err != nil {
		t.Fatalf("ping: %v", err)
	}
	return b
}

// unifiedTree returns where version 2 of cgroups is mounted.
func unifiedTree(t testing.TB) string {
	t.Helper()
	for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(mount, "cgroup.controllers")); err == nil {
			return mount
		}
	}
	need.Lacks(t, "the machine shows no cgroup tree of version 2")
	return ""
}

// makeGroups makes the groups of a runner as local/sandbox/cgroup does on version 2, but without
// controllers. It returns their directory.
func makeGroups(t testing.TB, owner int) string {
	t.Helper()
	dir, err := os.MkdirTemp(unifiedTree(t), "rockpool-agent-test-")
	if err != nil {
		t.Fatal(err)
	}
	below := []string{"run/x0", "run/x1", "run/rest", "run", "agent", "."}
	t.Cleanup(func() {
		for _, name := range below {
			wait.For(t, "the group "+name+" is removed", func() bool { // what ended may still be in it
				err := os.Remove(filepath.Join(dir, name))
				return err == nil || os.IsNotExist(err)
			})
		}
	})
	for _, name := range below {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// An agent that could write cgroup.kill must not do so.
	for _, file := range []string{"cgroup.procs", "run/cgroup.procs", "run/x0/cgroup.procs", "run/x1/cgroup.procs", "run/rest/cgroup.procs", "run/x0/cgroup.freeze", "run/x1/cgroup.freeze", "run/x0/cgroup.kill", "run/x1/cgroup.kill"} {
		if err := os.Chown(filepath.Join(dir, file), owner, owner); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	return dir
}

// limit puts the bed into its own cgroup, of version 1 or 2, and reads its limit back. Without a
// limit a fork bomb would freeze the machine.
func (b *bed) limit(t testing.TB, processes int) {
	t.Helper()
	mount, controller := "/sys/fs/cgroup/pids", "pids"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		mount, controller = "/sys/fs/cgroup", ""
	}
	parent := mount + "/rockpool"
	if err := os.MkdirAll(parent, 0o755); err != nil {
		t.Fatalf("needs a pids cgroup: %v", err)
	}
	for _, above := range []string{mount, parent} {
		if controller != "" {
			break
		}
		if err := os.WriteFile(filepath.Join(above, "cgroup.subtree_control"), []byte("+pids"), 0); err != nil {
			t.Fatalf("needs the pids controller: %v", err)
		}
	}
	cgroup, err := os.MkdirTemp(parent, "agent-test-")
	if err != nil {
		t.Fatalf("needs a pids cgroup: %v", err)
	}
	b.cgroup = cgroup
	write := func(name, value string) {
		if err := os.WriteFile(filepath.Join(cgroup, name), []byte(value), 0); err != nil {
			t.Fatalf("cgroup: %v", err)
		}
	}
	write("pids.max", strconv.Itoa(processes))
	write("cgroup.procs", strconv.Itoa(b.pid))
	limit, err := os.ReadFile(filepath.Join(cgroup, "pids.max"))
	if err != nil || strings.TrimSpace(string(limit)) != strconv.Itoa(processes) {
		t.Fatalf("pids.max is %q: %v", limit, err)
	}
	of, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", b.pid))
	if err != nil || !strings.Contains(string(of), ":"+controller+":"+strings.TrimPrefix(cgroup, mount)+"\n") {
		t.Fatalf("not in the cgroup: %q: %v", of, err)
	}
}

func (b *bed) dial(t testing.TB) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", b.socket)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

var testEnv = []string{"PATH=/usr/bin:/bin", "HOME=/workspace"}

// A result is the output and the end of an execution.
type result struct {
	stdout, stderr string
	exit           agent.Exit
}

// run runs a command to its end and settles it.
func (b *bed) run(t testing.TB, argv ...string) result {
	t.Helper()
	r, err := b.start(t, agent.Start{Argv: argv, Env: testEnv})
	if err != nil {
		t.Fatalf("%q: %v", argv, err)
	}
	return r
}

func (b *bed) sh(t testing.TB, script string) result {
	t.Helper()
	return b.run(t, "sh", "-c", script)
}

func (b *bed) start(t testing.TB, start agent.Start) (result, error) {
	t.Helper()
	s, err := b.session(t, start)
	if err != nil {
		return result{}, err
	}
	return b.finish(t, s), nil
}

func (b *bed) session(t testing.TB, start agent.Start) (*agent.Session, error) {
	t.Helper()
	if start.ID == "" {
		start.ID = fmt.Sprintf("%s-%d", t.Name(), time.Now().UnixNano())
	}
	return agent.StartExecution(t.Context(), b.dial(t), start)
}

// waitForOutput returns when a command has printed something.
func waitForOutput(t testing.TB, s *agent.Session) {
	t.Helper()
	for {
		event, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		if event.Kind == agent.KindOutput {
			return
		}
	}
}

// finish follows a session to the exit, acknowledges and settles.
func (b *bed) finish(t testing.TB, s *agent.Session) (r result) {
	t.Helper()
	defer func() { _ = s.Close() }()
	var stdout, stderr strings.Builder
	for {
		event, err := s.Next()
		if errors.Is(err, io.EOF) {
			t.Fatal("no exit")
		}
		if err != nil {
			t.Fatalf("next: %v", err)
		}
		switch event.Kind {
		case agent.KindOutput:
			to := &stdout
			if event.Stream == 2 {
				to = &stderr
			}
			to.Write(event.Data)
			if err := s.Ack(event.Offset + int64(len(event.Data))); err != nil {
				t.Fatalf("ack: %v", err)
			}
		case agent.KindExited:
			if err := s.Settled(); err != nil {
				t.Fatalf("settled: %v", err)
			}
			return result{stdout.String(), stderr.String(), event.Exit}
		}
	}
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("agent: %s", b)
	return len(b), nil
}
