package main

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/bridge"
	"github.com/rockpool/rockpool/agent/cmd/confinement"
	"github.com/rockpool/rockpool/test/executable"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

// newTask starts the agent as Nomad's driver raw_exec does: as root on the machine itself, with
// directories that every user may write to.
func newTask(t *testing.T, flags ...string) *bed {
	t.Helper()
	need.Sandboxes(t)
	parent, err := os.MkdirTemp("", "agent-task")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	t.Cleanup(func() {
		if err := os.RemoveAll(parent); err != nil {
			t.Error(err)
		}
	})
	must(os.Chmod(parent, 0o755))
	for _, name := range []string{"task", "task/local", "task/secrets"} {
		must(os.Mkdir(filepath.Join(parent, name), 0o777))
		must(os.Chown(filepath.Join(parent, name), 65534, 65534))
		must(os.Chmod(filepath.Join(parent, name), 0o777))
	}
	dir := filepath.Join(parent, "task")
	binary := filepath.Join(dir, "local/agent")
	executable.Copy(t, agentBinary, binary)
	b := &bed{socket: filepath.Join(dir, "secrets/agent.sock")}
	cmd := exec.Command(binary, append([]string{"serve", "--socket", b.socket, "--workspace", filepath.Join(dir, "local/workspace")}, flags...)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "NOMAD_TOKEN=very-secret", "NOMAD_SECRETS_DIR=" + filepath.Join(dir, "secrets")}
	cmd.Stderr = testWriter{t}
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(cmd.Start())
	b.pid = cmd.Process.Pid
	ended := make(chan struct{})
	b.ended = ended
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT) // Nomad's
		wait.Receive(t, ended, "the agent ends")
	})
	wait.For(t, "the agent answers", func() bool {
		conn, err := net.Dial("unix", b.socket)
		if err != nil {
			return false
		}
		_, err = agent.PingAgent(t.Context(), conn)
		return err == nil
	})
	return b
}

// up waits until a session's program prints that it runs.
func up(t *testing.T, s *agent.Session) {
	t.Helper()
	for {
		e, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == agent.KindOutput {
			if err := s.Ack(e.Offset + int64(len(e.Data))); err != nil || string(e.Data) != "up\n" {
				t.Fatalf("%q, %v", e.Data, err)
			}
			return
		}
	}
}

func TestTaskOfRawExecIsARunner(t *testing.T) {
	b := newTask(t)
	for script, want := range map[string]string{
		"id -u; id -g; pwd":              "1000\n1000\n/workspace\n",
		"stat -c '%a %u' . /tmp":         "755 1000\n1777 0\n",
		"env | sort":                     "HOME=/workspace\nPATH=/usr/bin:/bin\nPWD=/workspace\n",
		"echo hi >f && cat /workspace/f": "hi\n",
		"cat /proc/1/environ 2>&1":       "cat: /proc/1/environ: Permission denied\n",
		"kill -9 1 2>&1; echo here":      "sh: 1: kill: Operation not permitted\n\nhere\n",
		"set -- /proc/[0-9]*; echo $#":   "2\n", // the agent and the shell
		"ls /run /root; ls -A /tmp":      "/root:\n\n/run:\nhome\n",
		"grep -e CapEff -e CapBnd -e NoNewPrivs -e Seccomp: /proc/self/status | cut -f 2 | tr '\\n' ' '": "0000000000000000 0000000000000000 1 2 ",
		"grep CapPrm /proc/1/status": "CapPrm:\t00000000000001eb\n",
		"echo x 2>/dev/null >/dev/full || echo full; : </dev/null && head -c 3 /dev/zero | wc -c": "full\n3\n",
		"awk '$4 ~ /^rw/ && $3 !~ /proc|tmpfs|devpts/ {print $2}' /proc/mounts":                   "/workspace\n",
	} {
		if r := b.sh(t, script); r.stdout != want {
			t.Errorf("%s\n got %q %q\nwant %q", script, r.stdout, r.stderr, want)
		}
	}
	_, err := b.start(t, agent.Start{Argv: []string{"true"}, Env: testEnv, Privileged: true})
	var e *agent.Error
	if !errors.As(err, &e) || e.Code != agent.ErrDenied || e.Field != "privileged" {
		t.Errorf("root on the machine: %v", err)
	}
	b.put(t, agent.Write{Path: "/workspace/d/f", Size: 3}, "abc")
	if r := b.sh(t, "cat d/f; tty; setsid -w true && echo ok"); r.stdout != "abcnot a tty\nok\n" {
		t.Errorf("got %+v", r)
	}
	if r, err := b.start(t, agent.Start{Argv: []string{"tty"}, Env: testEnv, Terminal: &agent.Size{Columns: 80, Rows: 24}}); err != nil || !strings.HasPrefix(r.stdout, "/dev/pts/") {
		t.Errorf("a terminal: %+v, %v", r, err)
	}
}

func TestNoUserCanReplaceTheAgent(t *testing.T) {
	b := newTask(t)
	dir := filepath.Dir(filepath.Dir(b.socket))
	for path, want := range map[string]os.FileMode{
		dir: 0o755, filepath.Join(dir, "secrets"): 0o700, b.socket: 0o600, filepath.Join(dir, "local"): 0o755, filepath.Join(dir, "local/agent"): 0o755,
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode() & (os.ModePerm | os.ModeSticky); got != want || info.Sys().(*syscall.Stat_t).Uid != 0 {
			t.Errorf("%s: %v of user %d, want %v of root", path, got, info.Sys().(*syscall.Stat_t).Uid, want)
		}
	}
}

// Commands must not run as a user or group of the machine, where the first person is usually 1000.
func TestTaskCommandsRunAsNoUserOfTheMachine(t *testing.T) {
	dir, err := os.MkdirTemp("/var/tmp", "agent-task") // /tmp is the runner's own
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(dir, "key")
	b := newTask(t)
	for _, mode := range []os.FileMode{0o600, 0o060, 0o644} {
		if err := errors.Join(os.WriteFile(secret, []byte("key"), 0o600), os.Chown(secret, 1000, 1000), os.Chmod(secret, mode)); err != nil {
			t.Fatal(err)
		}
		if got := b.sh(t, "cat "+secret); (got.stdout == "key") != (mode == 0o644) {
			t.Errorf("of a file with mode %o a command reads %q %q", mode, got.stdout, got.stderr)
		}
	}
}

// The agent is root of the machine there. A client must only read files that a command may read,
// and the runner's own.
func TestTaskServesOnlyFilesThatCommandsMayRead(t *testing.T) {
	dir, err := os.MkdirTemp("/var/tmp", "agent-task")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	closed := filepath.Join(dir, "closed")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(closed, 0o700)); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"key": 0o600, "group": 0o640, "public": 0o644, "closed/public": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("text"), mode); err != nil {
			t.Fatal(err)
		}
	}
	b := newTask(t)
	b.sh(t, "ln -s "+dir+" dir; ln -s "+dir+"/key key")
	b.put(t, agent.Write{Path: "/workspace/protected/f", Size: 4, Mode: 0o600}, "text")
	for range 20 { // on whatever thread
		for path, code := range map[string]agent.ErrorCode{
			dir + "/public": "", "dir/public": "", "protected/f": "",
			dir + "/key": agent.ErrDenied, "key": agent.ErrDenied, "dir/group": agent.ErrDenied, "dir/closed/public": agent.ErrDenied,
		} {
			_, content, err := b.read(t, path)
			if code == "" && (err != nil || string(content) != "text") {
				t.Errorf("%s: %q, %v", path, content, err)
			}
			if code != "" {
				checkError(t, path, err, agent.Error{Code: code})
			}
		}
	}
	if all := b.list(t, agent.ListDir{Path: "dir", Recursive: true}); len(all) != 4 {
		t.Errorf("it lists %+v", all)
	}
	err = agent.ListFiles(t.Context(), b.dial(t), agent.ListDir{Path: closed}, func(agent.FileInfo) error { return nil })
	checkError(t, "a directory that only root lists", err, agent.Error{Code: agent.ErrDenied})
}

func TestTasksOfOneMachineAreIsolated(t *testing.T) {
	a, b := newTask(t), newTask(t)
	// Both are the first execution of their agent, so they have the same mark.
	long, err := a.session(t, agent.Start{Argv: []string{"sh", "-c", "sleep 1006 & echo up; read x; kill $! && echo still"}, Env: testEnv, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	up(t, long)
	short, err := b.session(t, agent.Start{Argv: []string{"sh", "-c", "ps -e | grep -c sleep; (setsid sleep 1007 &); exec sleep 1007"}, Env: testEnv})
	if err != nil {
		t.Fatal(err)
	}
	wait.For(t, "both sleep", func() bool { return b.sh(t, "ps -e | grep -c sleep").stdout == "2\n" })
	if err := short.Kill(0); err != nil {
		t.Fatal(err)
	}
	if r := b.finish(t, short); r.exit.Cause != agent.CauseKill || r.stdout != "0\n" {
		t.Fatalf("%+v", r)
	}
	if r := b.sh(t, "ps -e | grep -c sleep"); r.stdout != "0\n" {
		t.Errorf("it left %s", r.stdout)
	}
	if _, err := long.WriteStdin(t.Context(), 0, []byte("\n")); err != nil {
		t.Fatal(err)
	}
	if r := a.finish(t, long); r.stdout != "still\n" || r.exit.Code != 0 {
		t.Errorf("the other's: %+v", r)
	}
	// Processes of the same user elsewhere don't count for its limit.
	busy, err := a.session(t, agent.Start{Argv: []string{"sh", "-c", "for i in $(seq 30); do sleep 1000 & done; echo up; wait"}, Env: testEnv})
	if err != nil {
		t.Fatal(err)
	}
	up(t, busy)
	r, err := b.start(t, agent.Start{Argv: []string{"sh", "-c", "for i in $(seq 10); do sleep 0.1 & done; wait; echo done"}, Env: testEnv, Limits: &agent.Limits{Processes: 20}})
	if err != nil || r.stdout != "done\n" {
		t.Errorf("%+v, %v", r, err)
	}
	_ = busy.Close()
}

func TestTaskEndKillsItsProcesses(t *testing.T) {
	b := newTask(t)
	s, err := b.session(t, agent.Start{Argv: []string{"sh", "-c", "(setsid sh -c 'exec sleep 1009.5' &); echo up; sleep 1009.5"}, Env: testEnv})
	if err != nil {
		t.Fatal(err)
	}
	up(t, s)
	sleeping := func() int {
		all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		n := 0
		for _, path := range all {
			if line, _ := os.ReadFile(path); string(line) == "sleep\x001009.5\x00" {
				n++
			}
		}
		return n
	}
	wait.For(t, "both sleep", func() bool { return sleeping() == 2 })
	for range 100 { // a thread whose rights change forgets that it is to end
		if _, _, err := b.read(t, "/etc/passwd"); err != nil {
			t.Fatal(err)
		}
	}
	_ = syscall.Kill(b.pid, syscall.SIGKILL)
	wait.For(t, "nothing is left", func() bool { return sleeping() == 0 })
}

// startBridge runs the program's bridge as a user.
func startBridge(t *testing.T, socket string, uid uint32) (*bridge.Client, *exec.Cmd) {
	t.Helper()
	cmd := exec.Command(filepath.Join(filepath.Dir(socket), "../local/agent"), "bridge", "--socket", socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	cmd.Stderr = testWriter{t}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c, err := bridge.NewClient(struct {
		io.Reader
		io.WriteCloser
	}{out, in})
	if err != nil {
		t.Fatal(err)
	}
	return c, cmd
}

func TestOnlyTheAgentsUserCanBridge(t *testing.T) {
	b := newTask(t)
	c, cmd := startBridge(t, b.socket, 0)
	for range 20 {
		conn, err := c.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s, err := agent.StartExecution(t.Context(), conn, agent.Start{ID: "x" + strconv.FormatInt(time.Now().UnixNano(), 10), Argv: []string{"echo", "hi"}, Env: testEnv})
		if err != nil {
			t.Fatal(err)
		}
		if r := b.finish(t, s); r.stdout != "hi\n" {
			t.Errorf("%+v", r)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the bridge ended with %v", err)
	}

	refused := func(why string, want error) {
		t.Helper()
		c, cmd := startBridge(t, b.socket, confinement.User)
		conn, err := c.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := agent.PingAgent(t.Context(), conn); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", why, err, want)
		}
		_ = c.Close()
		_ = cmd.Wait()
	}
	refused("by the directory's mode", bridge.ErrNoAgent)
	for _, path := range []string{b.socket, filepath.Dir(b.socket)} {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	refused("by the peer's user", io.ErrUnexpectedEOF)
}

func TestTaskWithoutNetworkHasOnlyLoopback(t *testing.T) {
	b := newTask(t, "--no-network")
	if r := b.sh(t, "ls /sys/class/net 2>/dev/null; cat /proc/net/dev | tail -n +3 | cut -d: -f 1; cat /proc/net/route | wc -l"); strings.TrimSpace(r.stdout) != "lo\n1" {
		t.Errorf("%+v", r)
	}
}

func TestAgentReportsWhyItCannotServe(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	says, code := "--socket", 1
	if os.Geteuid() != 0 { // the agent checks this first
		says, code = "must be root", agent.ExitNotRoot
	}
	cmd := exec.Command(agentBinary, "serve", "--socket", filepath.Join(dir, "s"), "--workspace", filepath.Join(dir, "w"))
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), says) || cmd.ProcessState.ExitCode() != code {
		t.Errorf("%v: %s", err, out)
	}
}

// No client can reach an agent whose socket is missing or another one's. It ends, with all its
// commands.
func TestOrphanedAgentsEnd(t *testing.T) {
	for name, lose := range map[string]func(socket string) error{
		"gone": os.Remove,
		"another's": func(socket string) error {
			return errors.Join(os.Remove(socket), os.WriteFile(socket, nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTask(t)
			if err := lose(b.socket); err != nil {
				t.Fatal(err)
			}
			wait.Receive(t, b.ended, "it ends")
		})
	}
}
