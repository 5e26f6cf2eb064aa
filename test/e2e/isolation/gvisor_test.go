package isolation

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/imagetest"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/sandboxtest"
	"github.com/rockpool/rockpool/test/wait"
)

// TestE2EGVisor checks that programs run on another kernel than the machine's, within their limits.
// Outcomes are reported as with namespaces.
func TestE2EGVisor(t *testing.T) {
	b, _ := bed.OpenGVisor(t)
	b.Put(t, object{"id": "apart", "isolation": "GVISOR", "poolSize": 1, "resources": object{"processes": 40, "memoryMiB": 128}})
	b.Put(t, object{"id": "plain", "poolSize": 1})
	apart, plain := b.Claim(t, "apart"), b.Claim(t, "plain")
	machine, err := os.ReadFile("/proc/version")
	if err != nil {
		t.Fatal(err)
	}
	if got := b.Shell(t, plain, "cat /proc/version"); got.Stream("STDOUT") != string(machine) {
		t.Errorf("with namespaces the kernel is %q, not %q", got.Stream("STDOUT"), machine)
	}
	if got := b.Shell(t, apart, "cat /proc/version"); got.Stream("STDOUT") == string(machine) || !strings.Contains(got.Stream("STDOUT"), "gvisor") {
		t.Errorf("with gVisor the kernel is %q", got.Stream("STDOUT"))
	}
	if limit := b.LimitRead(t, "pids", apart); limit > 400 {
		t.Fatalf("the limit of processes around it is %d: no bomb without one", limit)
	}
	if limit := b.LimitRead(t, "memory", apart); limit > 256<<20 {
		t.Fatalf("the limit of memory around it is %d", limit)
	}
	for _, test := range []struct {
		in      object
		outcome runtime.Outcome
	}{
		{object{"shell": "exit 3"}, "EXITED"},
		{object{"shell": "kill -9 $$"}, "SIGNALED"},
		{object{"shell": "sleep 60", "timeLimit": 1}, "TIME_LIMIT"},
		{object{"command": []string{"yes"}, "limits": object{"outputBytes": 1 << 16}}, "OUTPUT_LIMIT"},
		{object{"shell": "while :; do :; done", "limits": object{"cpuSeconds": 1}, "timeLimit": 120}, "CPU_LIMIT"},
		{object{"shell": "for i in $(seq 20); do sleep 1000 & done; wait", "limits": object{"processes": 8}}, "PROCESS_LIMIT"},
		{object{"shell": "bomb() { bomb | bomb & }; bomb; sleep 120", "timeLimit": 120}, "PROCESS_LIMIT"},
		{object{"shell": "echo usable"}, "EXITED"},
	} {
		test.in["runnerId"] = apart
		if got := b.Run(t, test.in); got.Outcome != test.outcome {
			t.Errorf("%v: %s: %s\n%s", test.in, got.Outcome, got.Message, got.Stream("STDERR"))
		}
	}
	// Full memory ends the command or the runner; the outcome must say which.
	got := b.Run(t, object{"runnerId": apart, "command": []string{"python3", "-c", "x = []\nwhile True: x.append(bytearray(1 << 20))"}, "timeLimit": 120})
	t.Logf("full memory: %s %s", got.Outcome, got.GoneReason)
	if got.Outcome != "MEMORY_LIMIT" && (got.Outcome != "RUNNER_GONE" || got.GoneReason != "OUT_OF_MEMORY") {
		t.Errorf("%s %s: %s", got.Outcome, got.GoneReason, got.Message)
	}
	var health struct {
		Health struct {
			Components []struct{ Name, Message string }
		}
	}
	b.Call(t, `{ health { components { name message } } }`, nil, &health)
	if said := fmt.Sprint(health); !strings.Contains(said, "GVISOR is available (runsc version") {
		t.Errorf("health says %s", said)
	}
}

// TestE2EGVisorOutlivesTheServer checks that runners with gVisor keep running while no server does.
// The next server replaces those that died meanwhile.
func TestE2EGVisorOutlivesTheServer(t *testing.T) {
	need.Sandboxes(t)
	data, gvisor := bed.DataDir(t), sandboxtest.GVisor(t)
	p := apartOutlives(t, func() *bed.Process {
		return bed.Serve(t, data, bed.Rockpool(t), "serve", "--data", data, "--gvisor-runtime", gvisor)
	})
	p.Finish(t)
}

// TestE2EGVisorWithoutPrivileges runs a server without privileges. Its helper has the capabilities
// of its unit, and the runtime.
func TestE2EGVisorWithoutPrivileges(t *testing.T) {
	need.Sandboxes(t)
	gvisor := sandboxtest.GVisor(t) // before newSeparation changes HOME: the build is in its cache
	s := newSeparation(t)
	s.startHelper("--gvisor-runtime", gvisor)
	p := apartOutlives(t, func() *bed.Process { return s.serve() })
	p.Change(t, object{"id": "plain", "poolSize": 0})
	plain := p.ClaimUnreleased(t, "plain")
	if got := p.Shell(t, plain, "grep -c gvisor /proc/version"); got.Stream("STDOUT") != "0\n" {
		t.Errorf("without it: %+v", got)
	}
	p.Refused(t, `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`,
		object{"in": object{"id": "other", "runtime": "crun"}}, runtime.CodeInvalidInput, "runtime")

	// Commands don't need the helper. Runners that can't be removed now are removed later.
	apart := p.ClaimUnreleased(t, "apart")
	s.endHelper(syscall.SIGKILL)
	if got := p.Shell(t, apart, "echo still here"); got.Stream("STDOUT") != "still here\n" {
		t.Errorf("without a helper: %+v", got)
	}
	s.startHelper("--gvisor-runtime", gvisor)
	p.Call(t, `mutation($id: ID!) { releaseRunner(id: $id) { released } }`, object{"id": apart}, nil)
	wait.For(t, "it is removed", func() bool { return len(s.groupsOf(apart)) == 0 })
	p.Finish(t)
	if left, err := os.ReadDir(s.data + ".helper/held"); err != nil || len(left) > 0 {
		t.Errorf("the helper still has %v (%v)", left, err)
	}
}

// apartOutlives makes runners with gVisor from an image, and kills the server.
func apartOutlives(t *testing.T, start func() *bed.Process) *bed.Process {
	t.Helper()
	p := start()
	reference := imagetest.NewRegistry(t, nil).Push(busyboxImage(t, "1"), "busybox:tag")
	p.Change(t, object{"id": "apart", "isolation": "GVISOR", "image": reference, "poolSize": 2})
	runner := p.ClaimUnreleased(t, "apart")
	if got := p.Shell(t, runner, "id -u; pwd; cat file /version; grep -c gvisor /proc/version; echo kept >/workspace/file"); got.Stream("STDOUT") != "1000\n/srv\nhere1"+"1\n" {
		t.Errorf("in its runner: %+v", got)
	}
	script, want := bed.CountingTo(400, 4)
	r := &bed.Reader{ID: p.Start(t, object{"runnerId": runner, "shell": script})}
	before := p.Full(t, "apart", 2)
	delete(before, runner)
	victim := slices.Sorted(maps.Keys(before))[0]
	p.End(t, syscall.SIGKILL, false)
	groups, err := cgroup.Mounted()
	if err != nil {
		t.Fatal(err)
	}
	tree, _ := groups.Controller("pids")
	pids, err := cgroup.Processes(filepath.Join(tree.Mount, p.Cgroups, victim))
	if err != nil || len(pids) == 0 {
		t.Fatalf("of an idle runner run %v, %v", pids, err)
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	p = start()
	after := p.Full(t, "apart", 2)
	if _, there := after[victim]; there || after[runner].State != "CLAIMED" {
		t.Errorf("the runners are %+v, and were %+v", after, before)
	}
	if r.Read(t.Context(), p.Bed); r.Got.String() != want || r.Lost != 0 || r.End == nil || r.End.Outcome != "EXITED" {
		t.Errorf("%d bytes, %d lost, of %d; %+v", r.Got.Len(), r.Lost, len(want), r.End)
	}
	if got := p.Shell(t, runner, "cat /workspace/file"); got.Stream("STDOUT") != "kept\n" {
		t.Errorf("its file: %+v", got)
	}
	p.Call(t, `mutation($id: ID!) { releaseRunner(id: $id) { released } }`, object{"id": runner}, nil)
	return p
}

// TestE2EGVisorThatIsMissingIsRefused: a server without gVisor refuses an environment that requests
// it.
func TestE2EGVisorThatIsMissingIsRefused(t *testing.T) {
	b := bed.Open(t)
	b.Refused(t, `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`,
		object{"in": object{"id": "apart", "isolation": "GVISOR"}}, runtime.CodeInvalidInput, "isolation")
	b.Refused(t, `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`,
		object{"in": object{"id": "apart", "runtime": "crun"}}, runtime.CodeInvalidInput, "runtime")
}
