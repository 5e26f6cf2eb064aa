package local

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/sandboxtest"
	"github.com/rockpool/rockpool/test/wait"
)

// limitOf reads one limit of a process from outside: the path from /proc, the value from there.
func limitOf(t testing.TB, pid int, controller, file string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	unified := ""
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if f[1] == controller {
			value, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", controller, f[2], file))
			if err != nil {
				t.Fatal(err)
			}
			return strings.TrimSpace(string(value))
		}
		if f[1] == "" {
			unified = f[2]
		}
	}
	unified = strings.TrimSuffix(unified, "/agent")
	value, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", unified, file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(value))
}

// TestLimitsHold reads the files of the machine's version of cgroups; make test-vm runs it on
// version 2.
func TestLimitsHold(t *testing.T) {
	b := running(t)
	id := b.begin(hostEnvironment())
	pid := b.agentOf(id)
	if got := limitOf(t, pid, "pids", "pids.max"); got != b.most(48+spec.AgentRoomThreads) {
		t.Errorf("pids.max is %s, want 48, threads among the commands, and %d for the agent", got, spec.AgentRoomThreads)
	}
	file := "memory.limit_in_bytes"
	if tree, _ := b.host.Trees.Controller("memory"); tree.V2 {
		file = "memory.max"
	}
	if got := limitOf(t, pid, "memory", file); got != strconv.Itoa((128+24)<<20) {
		t.Errorf("%s is %s", file, got)
	}
}

// The values that are read back must be of this process, in this cgroup.
func TestCheckRefusesOtherProcessesAndGroups(t *testing.T) {
	b := running(t)
	one, other := b.begin(hostEnvironment()), b.begin(hostEnvironment())
	pid, group := b.agentOf(one), b.privateOf(one).Group
	s := spec.Sandbox{Group: group, Resources: spec.Resources(hostEnvironment().Resources), Root: spec.Root{Path: "/"}}
	want, err := spec.Limits(spec.New(s, b.host.Machine), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.host.Trees.Check(pid, group, want); err != nil {
		t.Errorf("a runner as it should be: %v", err)
	}
	less := func(change func(*cgroup.Limits)) cgroup.Limits {
		l := want
		change(&l)
		return l
	}
	for name, check := range map[string]struct {
		pid   int
		group string
		want  cgroup.Limits
	}{
		"a process outside":             {os.Getpid(), group, want},
		"a process of another runner":   {b.agentOf(other), group, want}, // with the same limits
		"a missing group":               {pid, group + "x", want},
		"the parent":                    {pid, "/" + b.config.CgroupParent, want},
		"other memory":                  {pid, group, less(func(l *cgroup.Limits) { l.Memory++ })},
		"another number of processes":   {pid, group, less(func(l *cgroup.Limits) { l.Processes-- })},
		"another share of CPU time":     {pid, group, less(func(l *cgroup.Limits) { l.CPUQuota++ })},
		"a missing process":             {1 << 30, group, want},
		"the first process of all, too": {1, group, want},
	} {
		if _, err := b.host.Trees.Check(check.pid, check.group, check.want); err == nil {
			t.Errorf("%s passes", name)
		}
	}
}

// A process that isn't in its cgroup when the limits are read back is refused and killed. This
// test's helper moves it out before.
func TestEscapeIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.stop()
	b.config.Helper = sandboxtest.Straying(t)
	core, logged := observer.New(zap.WarnLevel)
	b.config.Logger = zap.New(core)
	b.open()
	b.run()
	tree, ok := b.host.Trees.Controller("pids")
	if !ok {
		t.Fatal("no pids controller")
	}
	elsewhere := filepath.Join(tree.Mount, b.config.CgroupParent, "elsewhere")
	if err := os.MkdirAll(elsewhere, 0o755); err != nil {
		t.Fatal(err)
	}
	id := runtime.NewRunnerID()
	if err := b.Start(t.Context(), id, hostEnvironment(), runtime.PriorityRefill); err != nil {
		t.Fatal(err)
	}
	if r := b.await(id, runtime.RunnerIdle); r.State != runtime.RunnerGone || r.GoneReason != runtime.GoneStartFailed {
		t.Errorf("the runner is %s (%s)", r.State, r.GoneReason)
	}
	failed := logged.FilterField(zap.String("runner", string(id))).All()
	if why := fmt.Sprint(failed); len(failed) == 0 || !strings.Contains(why, "check the limits") || !strings.Contains(why, "elsewhere") {
		t.Errorf("it ended of something else: %s", why)
	}
	if err := b.Remove(t.Context(), id); err != nil {
		t.Error(err)
	}
	wait.For(t, "the escaped process ends", func() bool { return os.Remove(elsewhere) == nil })
}

func TestMemoryLimit(t *testing.T) {
	b := running(t)
	id := b.begin(hostEnvironment())
	if _, exit := b.sh(id, "exec python3 -c 'x = bytearray(1 << 30)'"); exit.Signal != "SIGKILL" {
		t.Errorf("a program that needs 1 GiB of 128 MiB ended with %d %q, want \"SIGKILL\"", exit.Code, exit.Signal)
	}
	b.expect(id, "echo still here", "still here")
	seen, err := b.Evidence(t.Context(), id)
	if err != nil || seen.OOMKills < 1 || seen.ProcessLimitHits != 0 {
		t.Errorf("evidence %+v, %v", seen, err)
	}
}

// The runner's limit is checked before anything forks, and the number of forks is bounded, so that
// a bug can't freeze the machine.
func TestProcessLimit(t *testing.T) {
	b := running(t)
	id := b.begin(hostEnvironment())
	if got := limitOf(t, b.agentOf(id), "pids", "run/pids.max"); got != b.most(48) {
		t.Fatalf("pids.max is %s: not forking", got)
	}
	got, _ := b.sh(id, `python3 -c '
import os, signal
n = 0
for i in range(300):
    try:
        if os.fork() == 0:
            signal.pause()
    except BlockingIOError:
        print("refused"); break
    n += 1
print(10 < n < 48)
os.kill(0, signal.SIGKILL)
'`)
	_ = got
	seen, err := b.Evidence(t.Context(), id)
	if err != nil || seen.ProcessLimitHits < 1 || seen.OOMKills != 0 {
		t.Errorf("evidence %+v, %v (%q)", seen, err, got)
	}
	b.expect(id, "echo still here", "still here")
}

// Empty files take no space, but memory of the runner.
func TestInodesRunOut(t *testing.T) {
	b := running(t)
	id := b.begin(hostEnvironment())
	got, _ := b.sh(id, `exec python3 -c '
import errno
n = 0
try:
    while n < 100000:
        open("/workspace/%d" % n, "x").close()
        n += 1
except OSError as e:
    print(e.errno == errno.ENOSPC, 4000 < n < 5120)
'`)
	if got != "True True\n" {
		t.Errorf("got %q", got)
	}
}

// Two busy processes together get a quarter of a core, by the agent's own clock; on a busy machine
// less.
func TestCPULimit(t *testing.T) {
	t.Parallel()
	b := running(t)
	env := hostEnvironment()
	env.Resources.CPUMHz = b.host.Machine.CoreMHz / 4
	id := b.begin(env)
	_, exit := b.sh(id, `timeout 2 sh -c 'while :; do :; done' & timeout 2 sh -c 'while :; do :; done'; wait; exit 0`)
	if used, most := exit.User+exit.System, exit.Wall/4+200*time.Millisecond; used > most || used == 0 {
		t.Errorf("%v of CPU time in %v", used, exit.Wall)
	}
}

// Version 1 limits memory and swap together, version 2 each.
func TestSwapDoesNotExtendMemory(t *testing.T) {
	b := running(t)
	if !b.host.Machine.Swap || b.host.Machine.Undivided != nil {
		need.Lacks(t, "the kernel doesn't count swap")
	}
	limits := map[string]int{"memory.memsw.limit_in_bytes": (128 + 24) << 20, "run/memory.memsw.limit_in_bytes": 128 << 20}
	if tree, _ := b.host.Trees.Controller("memory"); tree.V2 {
		limits = map[string]int{"memory.swap.max": 0, "run/memory.swap.max": 0}
	}
	pid := b.agentOf(b.begin(hostEnvironment()))
	for file, want := range limits {
		if got := limitOf(t, pid, "memory", file); got != strconv.Itoa(want) {
			t.Errorf("%s is %s", file, got)
		}
	}
}

// TestCoresStayInside: a program of the machine that gets core dumps from a pipe gets none of a
// runner's, although the kernel doesn't check for a limit of 0 there. It does get one of the
// machine's own processes, which shows that it works.
func TestCoresStayInside(t *testing.T) {
	b := running(t)
	const setting = "/proc/sys/kernel/core_pattern"
	before, err := os.ReadFile(setting)
	if err != nil {
		t.Fatal(err)
	}
	const ours = "rockpool-cores-"
	if bytes.Contains(before, []byte(ours)) { // left by a killed test
		before = []byte("core\n") // the kernel's default
	}
	dir, err := os.MkdirTemp("/tmp", ours) // the kernel's helper can reach it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	taker := filepath.Join(dir, "take")
	if err := os.WriteFile(taker, []byte("#!/bin/sh\ncat >"+dir+"/core.$1.$2\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(setting, []byte("|"+taker+" %u %p"), 0); err != nil {
		need.Lacks(t, "the machine's %s can't be set: %v", setting, err)
	}
	defer func() {
		if err := os.WriteFile(setting, before, 0); err != nil {
			t.Errorf("the setting isn't as it was: %v", err)
		}
	}()
	id := b.begin(hostEnvironment())
	users, err := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", b.agentOf(id)))
	var inside, first, count int
	if _, scanned := fmt.Sscan(string(users), &inside, &first, &count); err != nil || scanned != nil || inside != 0 {
		t.Fatalf("the runner's users are %q: %v", users, err)
	}
	for _, root := range []bool{false, true} {
		if _, exit := b.shell(id, "ulimit -c 0; sh -c 'kill -SEGV $$'; kill -SEGV $$", root); exit.Signal != "SIGSEGV" {
			t.Errorf("root %t: %+v", root, exit)
		}
	}
	crash := exec.Command("sh", "-c", "ulimit -c 0; kill -SEGV $$")
	if err := crash.Run(); crash.ProcessState == nil || crash.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGSEGV {
		t.Fatalf("it didn't crash: %v", err)
	}
	own := filepath.Join(dir, fmt.Sprintf("core.%d.%d", os.Getuid(), crash.Process.Pid))
	wait.For(t, "the machine's own core is taken", func() bool { // the kernel doesn't wait for its helper
		info, err := os.Stat(own)
		return err == nil && info.Size() > 0
	})
	// Core dumps arrive in the order of the crashes. Other programs of the machine may crash, too.
	cores, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, core := range cores {
		var user, pid int
		if _, err := fmt.Sscanf(core.Name(), "core.%d.%d", &user, &pid); err == nil && user >= first && user < first+count {
			t.Errorf("a core left the runner: %s", core.Name())
		}
	}
}

// TestSharedLimitsHold reads a runner's limits of shared resources back; make test-vm runs it on
// version 2, where socket buffers count as memory.
func TestSharedLimitsHold(t *testing.T) {
	need.Sandboxes(t)
	b := newBench(t)
	b.stop()
	b.config.DiskRead = 4 << 20
	b.open()
	b.run()
	id := b.begin(hostEnvironment())
	disks, err := cgroup.Disks("/usr")
	if err != nil {
		t.Fatal(err)
	}
	group := b.privateOf(id).Group
	for _, below := range []string{"", "/run/x0", "/run/x1", "/run/rest"} {
		memory, _ := b.host.Trees.Controller("memory")
		if got, err := os.ReadFile(filepath.Join(memory.Mount, group+below, "memory.kmem.tcp.limit_in_bytes")); !memory.V2 && (err != nil || strings.TrimSpace(string(got)) != strconv.Itoa(16<<20)) {
			t.Errorf("buffers of sockets in %q: %s, %v", below, got, err)
		}
		if len(disks) == 0 || !b.host.Trees.LimitsReads() {
			continue
		}
		at, want := "", disks[0]+" 4194304\n"
		if blkio, ok := b.host.Trees.Controller("blkio"); ok && !blkio.V2 {
			at = filepath.Join(blkio.Mount, group+below, "blkio.throttle.read_bps_device")
		} else if io, _ := b.host.Trees.Controller("io"); below == "" {
			at, want = filepath.Join(io.Mount, group, "run/io.max"), disks[0]+" rbps=4194304 wbps=max riops=64 wiops=max\n"
		}
		if at == "" {
			continue
		}
		if got, err := os.ReadFile(at); err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s is %q, %v, want %q", at, got, err, want)
		}
	}
	if len(disks) == 0 || !b.host.Trees.LimitsReads() {
		need.Lacks(t, "no cgroup can limit reads from the disk of /usr")
	}
	// Reading past the cache: at most the rate of the limit, however long it takes.
	var large string
	_ = filepath.WalkDir("/usr/bin", func(path string, e fs.DirEntry, err error) error {
		if info, infoErr := e.Info(); err == nil && infoErr == nil && info.Mode().IsRegular() && info.Size() > 2<<20 {
			large = path
			return fs.SkipAll
		}
		return nil
	})
	if large == "" {
		need.Lacks(t, "no program of this machine is large enough")
	}
	began := time.Now()
	if out, exit := b.sh(id, "for i in 1 2 3 4; do dd if="+large+" of=/dev/null bs=1M count=2 iflag=direct || exit 1; done"); exit.Code != 0 {
		t.Fatalf("%s, %+v", out, exit)
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("8 MiB were read in %v, with 4 MiB a second", took)
	}
}
