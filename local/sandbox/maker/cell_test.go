package maker_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/maker"
	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/test/need"
)

// A world makes cells with one set of control groups, as the sandbox helper does.
type world struct {
	testing.TB
	maker *maker.Maker
	trees cgroup.Hierarchies
	on    spec.Machine
	root  string
	init  *os.File
	group string
	join  []string
	count int
}

func newWorld(t testing.TB) *world {
	need.Sandboxes(t)
	trees, err := cgroup.Mounted()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{TB: t, trees: trees, on: spec.Inspect(trees), root: t.TempDir(), group: "/rockpool/cells-test"}
	if trees.Unified() {
		t.Skip("version 2 of cgroups: not yet")
	}
	program := filepath.Join(t.TempDir(), "init")
	flags := strings.Fields("-std=gnu17 -O2 -static -nostdlib -ffreestanding -fno-stack-protector -fno-tree-loop-distribute-patterns -fcf-protection=none -Wl,--build-id=none,-z,noseparate-code -o")
	if out, err := exec.Command("cc", append(flags, program, "init/init.c")...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.MemfdCreate("init", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	made := os.NewFile(uintptr(fd), "init")
	if _, err = made.Write(text); err == nil {
		w.init, err = os.Open("/proc/self/fd/" + strconv.Itoa(fd)) // read-only, or it would be busy
	}
	_ = made.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.init.Close() })
	if err := errors.Join(spec.BuildRoot(w.root, w.on, []byte("agent")), spec.MakeViews(), trees.Prepare(w.group)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { trees.Prune(w.group) })
	for _, controller := range []string{"memory", "pids", "cpu"} {
		h, _ := trees.Controller(controller)
		w.join = append(w.join, filepath.Join(h.Mount, w.group))
	}
	plain := spec.New(spec.Sandbox{Root: spec.Root{Path: w.root}, Group: "/rockpool", Resources: spec.Resources{Processes: 1}}, w.on)
	if w.maker, err = maker.New(w.root, plain); err != nil {
		t.Fatal(err)
	}
	return w
}

// run runs a command in a fresh cell, and returns its last report and its output.
func (w *world) run(c maker.Command) (agent.CellReport, string) {
	w.Helper()
	w.count++
	resources := spec.Resources{CPUMHz: 2000, MemoryMiB: 64, Processes: 64, WorkspaceMiB: 64}
	s := spec.New(spec.Sandbox{Group: w.group, Slot: w.count % 1000, Resources: resources, Root: spec.Root{Path: w.root}}, w.on)
	if err := spec.ViewOf(resources, w.on).Make(w.trees); err != nil {
		w.Fatal(err)
	}
	s.Process.Args, s.Process.Env = []string{"init"}, nil
	for i, limit := range s.Process.Rlimits { // as the helper does
		var own unix.Rlimit
		if err := unix.Getrlimit(spec.RlimitNumbers[limit.Type], &own); err != nil {
			w.Fatal(err)
		}
		s.Process.Rlimits[i].Soft, s.Process.Rlimits[i].Hard = min(limit.Soft, own.Max), min(limit.Hard, own.Max)
	}
	c.Dir, c.User, c.Group, c.Groups = spec.Workspace, 1000, 1000, []uint32{1000}
	plan, err := maker.NewPlan(c)
	if err != nil {
		w.Fatal(err)
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		w.Fatal(err)
	}
	socket, theirs := os.NewFile(uintptr(ends[0]), "agent"), os.NewFile(uintptr(ends[1]), "theirs")
	defer socket.Close()
	reports, report, err := os.Pipe()
	if err != nil {
		w.Fatal(err)
	}
	defer reports.Close()
	out, stdout, err := os.Pipe()
	if err != nil {
		w.Fatal(err)
	}
	defer out.Close()
	id := "cell" + strconv.Itoa(w.count)
	_, err = w.maker.Make(maker.Sandbox{
		ID: id, Spec: s, Stdio: [3]*os.File{nil, stdout, stdout}, Files: []*os.File{theirs, plan.File, report}, Program: w.init,
		Join: w.join, Check: func(int) error { return nil },
	})
	for _, f := range []*os.File{theirs, plan.File, report, stdout} {
		_ = f.Close()
	}
	if err != nil {
		w.Fatal(err)
	}
	if _, err := socket.WriteString("g"); err != nil {
		w.Fatal(err)
	}
	text, err := io.ReadAll(out)
	if err != nil {
		w.Fatal(err)
	}
	var last agent.CellReport
	for {
		b := make([]byte, agent.CellReportSize)
		n, err := reports.Read(b)
		if err != nil {
			break
		}
		if last, err = agent.ParseCellReport(b[:n]); err != nil {
			w.Fatal(err)
		}
		if f := plan.Failure(last); f != nil {
			w.Fatal(f)
		}
	}
	if err := w.maker.End(id); err != nil {
		w.Fatal(err)
	}
	return last, string(text)
}

func TestCellIsAMachineOfItsOwn(t *testing.T) {
	w := newWorld(t)
	c := maker.Command{
		Candidates: []string{"/bin/sh"}, Env: []string{"PATH=/usr/bin:/bin"},
		Args:  []string{"sh", "-c", "id -u; pwd; cat a; hostname; ls /proc | grep -c '^[0-9]'; cat /proc/1/status 2>&1 | head -1; ls -l /proc/1/exe 2>&1; grep -c . /proc/self/cgroup; head -1 /proc/meminfo; readlink /proc/self/fd/0; exit 3"},
		Files: []maker.File{{Path: "a", Content: []byte("hello\n")}},
	}
	r, out := w.run(c)
	if r.Kind != agent.CellEnded || r.Status.ExitStatus() != 3 {
		t.Errorf("%+v", r)
	}
	t.Log(out)
}

func BenchmarkCell(b *testing.B) {
	w := newWorld(b)
	for b.Loop() {
		if r, _ := w.run(maker.Command{Candidates: []string{"/bin/true"}, Args: []string{"true"}}); r.Status != 0 {
			b.Fatalf("%+v", r)
		}
	}
}
