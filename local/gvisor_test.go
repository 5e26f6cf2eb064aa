package local

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/local/host"
	"github.com/rockpool/rockpool/local/runner"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/clustertest"
	"github.com/rockpool/rockpool/test/executable"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/sandboxtest"
	"github.com/rockpool/rockpool/test/wait"
)

// withRuntimes opens a cluster with these runtimes, which doesn't run yet.
func withRuntimes(t testing.TB, all oci.Runtimes) *bench {
	t.Helper()
	b := newBench(t)
	b.stop()
	b.config.Runtimes = all
	b.open()
	return b
}

func withGVisor(t testing.TB) *bench {
	t.Helper()
	need.Sandboxes(t)
	return withRuntimes(t, oci.Runtimes{oci.GVisor: {Path: sandboxtest.GVisor(t)}})
}

func gvisorEnvironment() runtime.Environment {
	env := hostEnvironment()
	env.Isolation = runtime.IsolationGVisor
	return env
}

func TestGVisorConformance(t *testing.T) {
	clustertest.Suite(t, gvisorEnvironment(), func(t *testing.T) runtime.Cluster {
		b := withGVisor(t)
		b.stop()
		b.useSQLite()
		b.open()
		return b.run().Cluster
	})
}

// sentry returns the process of a runner's gVisor kernel, from its record.
func (b *bench) sentry(id runtime.RunnerID) int {
	b.t.Helper()
	return b.privateOf(id).Process.PID
}

// Programs see another kernel, and have no more rights in it than elsewhere.
func TestGVisorShowsItsOwnKernel(t *testing.T) {
	b := withGVisor(t).run()
	id := b.begin(gvisorEnvironment())
	machine, err := os.ReadFile("/proc/version")
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := b.sh(id, "cat /proc/version"); got == string(machine) || !strings.Contains(got, "gvisor") {
		t.Errorf("the kernel is %q, the machine's %q", got, machine)
	}
	for script, want := range map[string]string{
		"id -u": "1000",
		"grep MemTotal /proc/meminfo | tr -s ' '":                                                            "MemTotal: 131072 kB", // the runner's size
		"grep -E '^(CapPrm|CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\t' | tr '\n' ' '": "CapPrm:0000000000000000 CapEff:0000000000000000 CapBnd:0000000000000000 NoNewPrivs:1 Seccomp:2",
		"cat /proc/1/environ 2>&1 | tr -d '\\0'":                                                             "cat: /proc/1/environ: Permission denied",
		"ls /.rockpool 2>&1":                                                                                 "ls: cannot open directory '/.rockpool': Permission denied",
		"unshare -U true 2>&1":                                                                               "unshare: unshare failed: Operation not permitted",
		"(echo 1000 >/sys/fs/cgroup/all/pids.max) 2>/dev/null || echo no":                                    "no",
		"grep -c : /proc/net/dev":                                                                            "1",
		"hostname":                                                                                           "runner",
		"ls -1 /proc/self/fd | wc -l":                                                                        "4",
		"grep -c '^none / 9p ro,' /proc/mounts":                                                              "1",
		"df --output=size /workspace /tmp | tail -n +2 | tr -d ' '":                                          "16384\n32768",
	} {
		if got, _ := b.sh(id, script); strings.TrimSpace(got) != want {
			t.Errorf("%s\ngot  %q\nwant %q", script, got, want)
		}
	}
}

// A recorder is a connection that keeps what a client writes before it reads.
type recorder struct {
	net.Conn
	said bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error)      { return r.said.Write(p) }
func (r *recorder) Read([]byte) (int, error)         { return 0, io.EOF }
func (r *recorder) Close() error                     { return nil }
func (r *recorder) SetDeadline(time.Time) error      { return nil }
func (r *recorder) SetReadDeadline(time.Time) error  { return nil }
func (r *recorder) SetWriteDeadline(time.Time) error { return nil }

// pingBytes returns what a client writes to ping an agent.
func pingBytes(t *testing.T) []byte {
	t.Helper()
	var conn recorder
	if _, err := agent.PingAgent(t.Context(), &conn); err == nil {
		t.Fatal("a client takes no answer for an answer")
	}
	return conn.said.Bytes()
}

// The agent serves connections from the machine, and none from commands, not even with root's
// rights. The server follows nothing that a runner puts in the socket's place.
func TestGVisorSocket(t *testing.T) {
	b := withGVisor(t).run()
	id, other := b.begin(gvisorEnvironment()), b.begin(hostEnvironment())
	conn, err := b.Dial(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	knock := fmt.Sprintf("import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('/.rockpool/agent.sock')\ns.settimeout(100)\n"+
		"try:\n  s.send(bytes.fromhex('%x'))\n  print('heard', len(s.recv(1)))\nexcept OSError:\n  print('heard 0')", pingBytes(t))
	s, err := agent.StartExecution(t.Context(), conn, agent.Start{
		ID: "knock", Argv: []string{"python3", "-c", knock}, Env: []string{"PATH=/usr/bin"}, Privileged: true, TimeLimit: wait.Limit,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var said strings.Builder
	for {
		event, err := s.Next()
		if err != nil || event.Kind == agent.KindExited {
			break
		}
		said.Write(event.Data)
	}
	if said.String() != "heard 0\n" {
		t.Errorf("a command of root's at the agent's socket: %s", said.String())
	}
	outside := filepath.Join(b.host.RunnerDir(id), host.OutsideDir)
	before, err := os.ReadDir(outside)
	if err != nil {
		t.Fatal(err)
	}
	b.asRoot(id, "chmod 777 /.rockpool; chown 0 /.rockpool") // has no effect on the machine
	for _, try := range []string{"touch /.rockpool/x", "mkdir /.rockpool/d", "rm -f /.rockpool/agent.sock", "rm -f /.rockpool/agent", "mv /.rockpool/agent.sock /.rockpool/b", "echo x >>/.rockpool/agent"} {
		if out, exit := b.asRoot(id, "{ "+try+"; } 2>/dev/null && echo done"); out != "" {
			t.Errorf("root of the runner: %s: %s (%+v)", try, out, exit)
		}
	}
	if info, err := os.Stat(outside); err != nil || info.Mode().Perm() != 0o711 || info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("the directory of the agent's socket is %v, %v", info, err)
	}
	if after, err := os.ReadDir(outside); err != nil || !slices.Equal(namesOf(before), namesOf(after)) {
		t.Errorf("it has %v, and had %v (%v)", namesOf(after), namesOf(before), err)
	}
	at := filepath.Join(outside, spec.SocketName)
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(b.host.RunnerDir(other), spec.SocketName), at); err != nil {
		t.Fatal(err)
	}
	if conn, err := b.Dial(t.Context(), id); err == nil {
		conn.Close()
		t.Error("the server followed a link to another socket")
	}
}

// The machine's cgroups contain everything of the sandbox: its kernel, its helpers, and the
// programs in it. The test checks that before it relies on it. CI runs it on cgroups version 1
// only: gVisor is too slow for make test-vm.
func TestGVisorLimits(t *testing.T) {
	b := withGVisor(t).run()
	env := gvisorEnvironment()
	id := b.begin(env)
	takes := spec.GVisorFootprint(spec.Resources(env.Resources))
	pid := b.sentry(id)
	if got := limitOf(t, pid, "pids", "pids.max"); got != strconv.Itoa(takes.Processes) {
		t.Fatalf("pids.max is %s, want %d", got, takes.Processes)
	}
	file := "memory.limit_in_bytes"
	if tree, _ := b.host.Trees.Controller("memory"); tree.V2 {
		file = "memory.max"
	}
	if got := limitOf(t, pid, "memory", file); got != strconv.Itoa(takes.MemoryMiB<<20) {
		t.Fatalf("%s is %s, want %d MiB", file, got, takes.MemoryMiB)
	}
	tree, _ := b.host.Trees.Controller("pids")
	group := filepath.Join(tree.Mount, b.privateOf(id).Group)
	pids, err := cgroup.Processes(group)
	if err != nil || len(pids) < 3 {
		t.Errorf("the cgroup has %v, %v: want the kernel, a gofer and the programs inside", pids, err)
	}
	scores := map[string]int{} // processes of programs are killed first when memory is full
	for _, other := range pids {
		score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", other))
		if text := strings.TrimSpace(string(score)); err == nil && (other != pid || text != "0") {
			scores[text]++
		}
	}
	if scores["900"] == 0 || scores["0"] != 1 {
		t.Errorf("the kernel is to be spared, and its gofer: %v", scores)
	}
	status, err := b.Status(t.Context())
	if err != nil || status.Capacity.MemoryMiBUsed != int64(takes.MemoryMiB) {
		t.Errorf("%+v, %v: want %d MiB taken", status.Capacity, err, takes.MemoryMiB)
	}

	own := func(exit agent.Exit) agent.CommandCounts {
		if exit.PerCommand == nil {
			return agent.CommandCounts{}
		}
		return *exit.PerCommand
	}
	// The number of processes is exactly the limit.
	count := "i=0; while [ $i -lt %n% ]; do sleep 60 & i=$((i+1)); done; echo all"
	if got, exit := b.sh(id, strings.ReplaceAll(count, "%n%", "47")); !strings.Contains(got, "all") || own(exit).ForksRefused != 0 {
		t.Errorf("48 processes: %q, %+v, %+v", got, exit, own(exit))
	}
	if got, exit := b.sh(id, strings.ReplaceAll(count, "%n%", "100")); strings.Contains(got, "all") || own(exit).ForksRefused == 0 {
		t.Errorf("101 processes: %q, %+v, %+v", got, exit, own(exit))
	}
	if _, exit := b.sh(id, "b() { b | b & }; b; sleep 20"); exit.Cause != agent.CauseProcessLimit {
		t.Errorf("a fork bomb: %+v, %+v", exit, own(exit))
	}
	b.expect(id, "echo alive", "alive")
	// The workspace has its size.
	if got, exit := b.sh(id, "head -c 20M /dev/zero >/workspace/x; wc -c </workspace/x; rm /workspace/x"); !strings.Contains(got, "No space left") || exit.Code != 0 {
		t.Errorf("20 MB into 16: %q, %+v", got, exit)
	}
	// Full memory ends the command or the runner; the machine's counters say which.
	before, err := b.Evidence(t.Context(), id)
	if err != nil || !before.OwnKernel {
		t.Fatal(before, err)
	}
	conn, err := b.Dial(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	s, err := agent.StartExecution(t.Context(), conn, agent.Start{ID: "memory", Argv: []string{"python3", "-c", "x = b'x' * (1 << 30)"}, Env: []string{"PATH=/usr/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for err == nil {
		var event agent.Event
		if event, err = s.Next(); err == nil && event.Kind == agent.KindExited {
			if event.Exit.Code == 0 && event.Exit.Signal == "" {
				t.Errorf("a program that needs 1 GiB of 128 MiB ended with %+v", event.Exit)
			}
			break
		}
	}
	after, err := b.Evidence(t.Context(), id)
	if err != nil || after.OOMKills <= before.OOMKills {
		t.Errorf("out of memory: %+v, before %+v, %v", after, before, err)
	}
	if r, ok := b.runner(id); ok && r.State == runtime.RunnerGone && r.GoneReason != runtime.GoneOutOfMemory {
		t.Errorf("the runner is %+v", r)
	}
}

// The reported reason is from the machine's counters, whatever was requested meanwhile, and not
// from an earlier kill that the runner survived.
func TestGVisorReportsWhyARunnerEnded(t *testing.T) {
	b := withGVisor(t).run()
	dies, lives := b.begin(gvisorEnvironment()), b.begin(gvisorEnvironment())

	// One whose kernel doesn't answer after a kill, as if it were ending.
	pid := b.sentry(dies)
	groups, err := b.host.Trees.Of(pid)
	if err != nil {
		t.Fatal(err)
	}
	freeze(t, pid)
	hungry := exec.CommandContext(t.Context(), "sh", "-c", `echo 1000 >/proc/self/oom_score_adj && echo $$ >"$0/cgroup.procs" && exec python3 -c 'x = bytearray(1 << 28)'`, groups.Memory.Dir)
	if err := hungry.Run(); err == nil {
		t.Fatal("it isn't limited")
	}
	if e, err := b.Evidence(t.Context(), dies); err != nil || e.OOMKills == 0 {
		t.Fatal(e, err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if r := b.await(dies, runtime.RunnerGone); r.GoneReason != runtime.GoneOutOfMemory {
		t.Errorf("its memory was full when it died, and it is %+v", r)
	}

	// One that survived a kill, and soon ends for another reason.
	if _, exit := b.sh(lives, "exec python3 -c 'x = bytearray(1 << 30)'"); exit.Signal == "" {
		t.Fatalf("a program that needs 1 GiB of 128 MiB: %+v", exit)
	}
	b.mu.Lock()
	counters := b.entries[lives].runner.Sandbox.Counters
	b.mu.Unlock()
	wait.For(t, "it has answered since", func() bool { // each call gives it some time for that
		e, err := b.Evidence(t.Context(), lives)
		if err != nil || e.OOMKills == 0 {
			t.Fatal(e, err)
		}
		return !counters.Killed(e)
	})
	if err := unix.Kill(b.sentry(lives), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if r := b.await(lives, runtime.RunnerGone); r.GoneReason != runtime.GoneAgentDied {
		t.Errorf("its kernel was killed, and it is %+v", r)
	}
}

// The next server finds the runners of a server that ended, and removes all of them.
func TestGVisorOutlivesTheServer(t *testing.T) {
	b := withGVisor(t)
	b.runKept()
	lives, dies := b.begin(gvisorEnvironment()), b.begin(gvisorEnvironment())
	b.expect(lives, "echo kept >file; cat file", "kept")
	pid, victim := b.sentry(lives), b.sentry(dies)
	b.stop()
	if err := unix.Kill(victim, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.reopened()
	if r, _ := b.runner(lives); r.State != runtime.RunnerIdle || b.sentry(lives) != pid {
		t.Errorf("the one that lives is %+v", r)
	}
	if r, ok := b.runner(dies); ok {
		t.Errorf("the one that died is %+v", r)
	}
	b.expect(lives, "cat file", "kept")
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if r := b.await(lives, runtime.RunnerGone); r.GoneReason != runtime.GoneAgentDied {
		t.Errorf("its kernel was killed, and it is %+v", r)
	}
	if err := b.Remove(t.Context(), lives); err != nil {
		t.Error(err)
	}
	b.noRunnerLeft()
}

// If a helper is killed while it makes a sandbox, removing that finds everything.
func TestGVisorKilledCreateLeavesNothing(t *testing.T) {
	b := withGVisor(t).run()
	for range 10 {
		r := runtime.Runner{ID: runtime.NewRunnerID(), Environment: gvisorEnvironment(), State: runtime.RunnerStarting}
		d := b.newEntry(r, runtime.PriorityRefill, runner.Record{}).runner.Sandbox
		slot := placed(t, d)
		if h, _, err := d.Create(atSomeMoment(t, 200*time.Millisecond), *slot); err == nil {
			h.Close()
		}
		if err := d.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
		if err := d.Release(slot); err != nil {
			t.Error(err)
		}
	}
	b.noRunnerLeft()
}

// An unavailable isolation is refused with the reason, and no other isolation replaces it.
func TestUnavailableIsolationIsRefused(t *testing.T) {
	t.Parallel()
	need.Sandboxes(t)
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		executable.Write(t, path, []byte(text))
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, test := range map[string]struct {
		all  oci.Runtimes
		says string
	}{
		"not configured":       {nil, "gvisor-runtime"},
		"no such file":         {oci.Runtimes{oci.GVisor: {Path: dir + "/none"}}, "installed"},
		"not executable":       {oci.Runtimes{oci.GVisor: {Path: write("text", "x", 0o644)}}, "executed"},
		"another program":      {oci.Runtimes{oci.GVisor: {Path: "/usr/bin/true"}}, "runsc"},
		"another architecture": {oci.Runtimes{oci.GVisor: {Path: write("elf", "\x7fELF", 0o755)}}, "this machine"},
		"writable for all":     {oci.Runtimes{oci.GVisor: {Path: write("open", "x", 0o777)}}, "other than root"},
		"an old version":       {oci.Runtimes{oci.GVisor: {Path: write("old", "#!/bin/sh\necho unknown flag >&2; exit 2\n", 0o755)}}, "unknown flag"},
		"no response":          {oci.Runtimes{oci.GVisor: {Path: write("slow", "#!/bin/sh\nexec sleep 100\n", 0o755)}}, "4s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := withRuntimes(t, test.all).run()
			err := b.PutEnvironment(t.Context(), gvisorEnvironment())
			if runtime.CodeOf(err) != runtime.CodeInvalidInput || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want INVALID_INPUT with %q", err, test.says)
			}
			// It was available when the environment was put.
			id := runtime.NewRunnerID()
			if err := b.Start(t.Context(), id, gvisorEnvironment(), runtime.PriorityRefill); err != nil {
				t.Fatal(err)
			}
			if name == "no response" {
				return // the helper is abandoned after 30 s
			}
			if r := b.await(id, runtime.RunnerGone); r.GoneReason != runtime.GoneStartFailed || !strings.Contains(r.Message, "gvisor") {
				t.Errorf("a runner of it is %+v, want START_FAILED that names gvisor", r)
			}
			if err := b.Remove(t.Context(), id); err != nil {
				t.Error(err)
			}
			if status, err := b.Status(t.Context()); err != nil || test.all != nil && !strings.Contains(status.Remark, "GVISOR is unavailable: ") {
				t.Errorf("%+v, %v", status, err)
			}
		})
	}
}

func namesOf(entries []os.DirEntry) (names []string) {
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
