package cgroup

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

// settled makes the cgroups of a sandbox in version 2, around a sleeping process.
func settled(t *testing.T, owner int, want Limits) (trees Hierarchies, path, dir string, pid int) {
	need.Sandboxes(t)
	trees, err := Mounted()
	if err != nil {
		t.Fatal(err)
	}
	h, ok := trees.unified()
	if !ok {
		t.Skip("version 1 of cgroups controls memory and processes here; make test-vm runs this on version 2")
	}
	path = fmt.Sprintf("/rockpool/test-settled-%d", os.Getpid())
	dir = filepath.Join(h.Mount, path)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait.Limit)
		defer cancel()
		if err := trees.Remove(ctx, path); err != nil {
			t.Error(err)
		}
	})
	parts, err := trees.Divide(path, owner, want)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		_ = p.Dir.Close()
	}
	for _, at := range []string{h.Mount, filepath.Dir(dir)} { // like libcontainer
		if err := os.WriteFile(filepath.Join(at, "cgroup.subtree_control"), []byte("+memory +pids +cpu"), 0); err != nil {
			t.Fatal(err)
		}
	}
	group, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	cmd := exec.Command("sleep", "100")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if err := trees.Settle(path, owner, want); err != nil {
		t.Fatal(err)
	}
	return trees, path, dir, cmd.Process.Pid
}

// TestSettleOnVersion2: the agent is separate from its commands, whose limits hold. It may put
// processes into their cgroups, and nothing else. Its twin for version 1 is TestDivideOnVersion1 in
// divide_test.go.
func TestSettleOnVersion2(t *testing.T) {
	const owner = 1_234_567_890
	trees, path, dir, pid := settled(t, owner, Limits{Memory: 64 << 20, Processes: 10, CPUQuota: 50_000, CPUPeriod: 100_000})
	if pids, err := Processes(filepath.Join(dir, Agent)); err != nil || !slices.Equal(pids, []int{pid}) {
		t.Errorf("the agent's group has %v (%v)", pids, err)
	}
	if groups, err := trees.Member(pid, path); err != nil || groups.Memory.Dir != dir {
		t.Errorf("%+v, %v", groups, err)
	}
	for file, want := range map[string]string{
		"run/memory.max": "67108864", "run/memory.swap.max": "0", "run/pids.max": "10", "run/x0/pids.max": "10", "run/rest/pids.max": "10",
		"agent/cpu.weight": "1000", "run/cpu.weight": "100", "run/cpu.max": "50000 100000",
		// Runtimes of languages read the limits of a command's own group.
		"run/x0/memory.max": "67108864", "run/x1/cpu.max": "50000 100000", "run/rest/memory.max": "67108864",
	} {
		got, err := os.ReadFile(filepath.Join(dir, file))
		if os.IsNotExist(err) && strings.Contains(file, "swap") {
			continue
		}
		if strings.TrimSpace(string(got)) != want {
			t.Errorf("%s is %q (%v)", file, got, err)
		}
	}

	// The owner may put processes into the commands' cgroups. It can't move processes there from
	// elsewhere, leave, or change a limit, except that of processes of a single command.
	as := func(script string) error {
		cmd := exec.Command("/bin/sh", "-c", script)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner, Gid: owner}}
		inside, err := os.Open(filepath.Join(dir, Agent))
		if err != nil {
			t.Fatal(err)
		}
		defer inside.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(inside.Fd())
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	if err := as("echo $$ >run/x0/cgroup.procs && grep -q /run/x0 /proc/self/cgroup"); err != nil {
		t.Errorf("into a group of commands: %v", err)
	}
	if err := as("echo $$ >run/rest/cgroup.procs && echo $$ >run/x0/cgroup.procs && grep -q /run/x0 /proc/self/cgroup"); err != nil {
		t.Errorf("from one group of commands into another: %v", err)
	}
	if err := as("sleep 100 & echo $! >run/x0/cgroup.procs && echo 1 >run/x0/cgroup.freeze && kill -9 $! && wait $!; [ $? = 137 ] && echo 0 >run/x0/cgroup.freeze"); err != nil {
		t.Errorf("end a command's group: %v", err)
	}
	if err := as("echo 5 >run/x0/pids.max && echo 10 >run/x0/pids.max"); err != nil { // those above have a limit, too
		t.Errorf("limit a command's processes: %v", err)
	}
	for name, script := range map[string]string{
		"out":                       "echo $$ >../cgroup.procs",
		"to the top":                "echo $$ >../../cgroup.procs",
		"beside the groups":         "echo $$ >cgroup.procs",
		"above commands' groups":    "echo $$ >run/cgroup.procs",
		"into the agent's":          "echo $$ >run/x0/cgroup.procs && echo $$ >agent/cgroup.procs",
		"other processes":           "echo 11 >run/pids.max",
		"other memory":              "echo 1 >run/x0/memory.max",
		"more in the shared group":  "echo 11 >run/rest/pids.max",
		"a group":                   "mkdir run/x0/more",
		"no controllers":            "echo -pids >run/cgroup.subtree_control",
		"end all that is with this": "echo 1 >run/cgroup.kill",
		"kill a command's group":    "echo 1 >run/x0/cgroup.kill", // some kernels can't start a command there afterwards
		"kill the shared group":     "echo 1 >run/rest/cgroup.kill",
		"freeze the shared group":   "echo 1 >run/rest/cgroup.freeze",
		"freeze all":                "echo 1 >run/cgroup.freeze",
	} {
		if err := as(script); err == nil {
			t.Errorf("%s: done", name)
		}
	}
}

// TestSettleRefusesOnVersion2: a limit that the kernel changes is an error. Its twin for version 1
// is TestDivideRefusesOnVersion1 in divide_test.go.
func TestSettleRefusesOnVersion2(t *testing.T) {
	trees, path, dir, _ := settled(t, 0, Limits{Memory: 64 << 20, Processes: 10})
	if err := trees.Settle(path, 0, Limits{Memory: 64<<20 + 1, Processes: 10}); err == nil { // the kernel counts in pages
		t.Error("a limit that reads otherwise is taken")
	}
	if err := trees.Settle(path, 0, Limits{Memory: 64 << 20}); err != nil {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(dir, Commands, "x0")); err != nil {
		t.Fatal(err)
	}
	if err := trees.Settle(path, 0, Limits{Memory: 64 << 20, Processes: 10}); err == nil {
		t.Error("a missing group is settled")
	}
}
