package main

import (
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/maker"
	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/test/need"
)

// A cellBed makes cells as a maker's process does.
type cellBed struct {
	testing.TB
	server *server
	parent string
	users  int // a range of user ids for each cell
}

func newCellBed(t testing.TB) *cellBed {
	need.Sandboxes(t)
	trees, err := cgroup.Mounted()
	if err != nil {
		t.Fatal(err)
	}
	root, machine := t.TempDir(), spec.Inspect(trees)
	if err := spec.BuildRoot(root, machine, []byte("agent")); err != nil {
		t.Fatal(err)
	}
	b := &cellBed{TB: t, parent: fmt.Sprintf("/rockpool/cells-%d", os.Getpid())}
	c := helper.Config{State: t.TempDir(), Root: root, Parent: b.parent, Machine: machine, DiskRead: 128 << 20}
	b.server = &server{config: c, trees: trees, last: map[string]chan struct{}{}, slots: map[string]*slot{}}
	t.Cleanup(func() {
		for id := range b.server.slots {
			if err := b.server.retire(c, id); err != nil {
				t.Error(err)
			}
		}
		trees.Prune(b.parent)
	})
	return b
}

var cellSize = spec.Resources{CPUMHz: 2000, MemoryMiB: 64, Processes: 32, WorkspaceMiB: 64}

// begin makes a cell in a slot, and returns the agent's descriptors.
func (b *cellBed) begin(id string, command maker.Command) (*maker.Plan, []*os.File) {
	b.Helper()
	command.Dir, command.User, command.Group, command.Groups = spec.Workspace, 1000, 1000, []uint32{1000}
	plan, err := maker.NewPlan(command)
	if err != nil {
		b.Fatal(err)
	}
	defer plan.File.Close()
	b.users++
	size := cellSize
	order := &helper.Order{Parent: b.parent, Request: helper.Request{Protocol: helper.Protocol, Command: helper.Cell, ID: id, Slot: b.users % 1000, Resources: &size}}
	if err := order.Check(); err != nil {
		b.Fatal(err)
	}
	_, files, err := b.server.perform(order, []*os.File{plan.File})
	if err != nil {
		b.Fatal(err)
	}
	return plan, files
}

func (b *cellBed) end(id string) helper.CellEnd {
	b.Helper()
	answer, _, err := b.server.perform(&helper.Order{Parent: b.parent, Request: helper.Request{Protocol: helper.Protocol, Command: helper.EndCell, ID: id}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	return *answer.Cell
}

// run runs a command in a cell to its end.
func (b *cellBed) run(id string, command maker.Command) (helper.CellEnd, string) {
	b.Helper()
	plan, files := b.begin(id, command)
	defer helper.CloseAll(files)
	await := func(kind agent.CellReportKind) {
		report := make([]byte, agent.CellReportSize)
		for {
			n, err := unix.Read(int(files[0].Fd()), report)
			if err != nil {
				b.Fatal(err)
			}
			r, err := agent.ParseCellReport(report[:n])
			if err != nil {
				b.Fatal(err)
			}
			if f := plan.Failure(r); f != nil {
				b.Fatal(f)
			}
			if r.Kind == kind {
				return
			}
		}
	}
	await(agent.CellPrepared)
	if _, err := unix.Write(int(files[0].Fd()), []byte{agent.CellGo}); err != nil {
		b.Fatal(err)
	}
	out, err := io.ReadAll(files[1])
	if err != nil {
		b.Fatal(err)
	}
	await(agent.CellEnded)
	return b.end(id), string(out)
}

func shellCommand(script string) maker.Command {
	return maker.Command{Candidates: []string{"/bin/sh"}, Args: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}}
}

func TestCellsUseASlotAgain(t *testing.T) {
	b := newCellBed(t)
	for i, test := range []struct {
		script string
		out    string
		check  func(helper.CellEnd) bool
	}{
		{"echo $$; id -u; exit 3", "2\n1000\n", func(e helper.CellEnd) bool { return e.Ended && syscall.WaitStatus(e.Status).ExitStatus() == 3 }},
		{"head -c 40000000 /dev/zero >/tmp/a; ls /tmp /workspace", "/tmp:\na\n\n/workspace:\n", func(e helper.CellEnd) bool { return e.PeakMemory > 40_000_000 }},
		{"head -c 80000000 /dev/zero | tail -c 70000000 >/dev/null; echo", "\n", func(e helper.CellEnd) bool { return e.OOMKills > 0 }},
		{"i=0; while [ $i -lt 40 ]; do sleep 5 & i=$((i+1)); done 2>/dev/null; echo", "", func(e helper.CellEnd) bool { return e.Refused > 0 }},
		{"i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo", "\n", func(e helper.CellEnd) bool { return e.CPU > 50*time.Millisecond }},
		{"setsid sleep 1000 >/dev/null 2>&1 & echo", "\n", func(e helper.CellEnd) bool { return e.Ended && e.Status == 0 }},
		{"ls -A /tmp /workspace /dev/shm; grep -c . /proc/self/cgroup >/dev/null; ls /proc | grep -c '^[0-9]'", "/dev/shm:\n\n/tmp:\n\n/workspace:\n4\n", func(e helper.CellEnd) bool {
			return e.OOMKills == 0 && e.Refused == 0 && e.PeakMemory < 10_000_000 && e.CPU < time.Second
		}},
	} {
		end, out := b.run("slot0", shellCommand(test.script))
		if out != test.out && test.out != "" || !test.check(end) {
			t.Errorf("%d: got %+v and %q, want %q", i, end, out, test.out)
		}
	}
	if n := len(b.server.slots); n != 1 {
		t.Errorf("%d slots are left, want 1", n)
	}
}

func BenchmarkCell(b *testing.B) {
	bed := newCellBed(b)
	before := cpu(b)
	for b.Loop() {
		if end, _ := bed.run("slot0", maker.Command{Candidates: []string{"/bin/true"}, Args: []string{"true"}}); end.Status != 0 || !end.Ended {
			b.Fatalf("%+v", end)
		}
	}
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N)/1000, "cpu-ms/op")
}

// cpu returns the CPU time of this process and of those that it waited for.
func cpu(t testing.TB) (all time.Duration) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var used unix.Rusage
		if err := unix.Getrusage(who, &used); err != nil {
			t.Fatal(err)
		}
		all += time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	return all
}

