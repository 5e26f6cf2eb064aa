package local

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/clustertest"
	"github.com/rockpool/rockpool/test/executable"
	"github.com/rockpool/rockpool/test/need"
)

// withRunc opens a cluster with the machine's own runc, which doesn't run yet.
func withRunc(t testing.TB) (*bench, runtime.Environment) {
	t.Helper()
	need.Sandboxes(t)
	path, err := exec.LookPath("runc")
	if err != nil {
		need.Lacks(t, "no runc: %v", err)
	}
	env := hostEnvironment()
	env.Runtime = "runc"
	return withRuntimes(t, oci.Runtimes{"runc": {Path: path}}), env
}

func TestRuntimeConformance(t *testing.T) {
	t.Parallel()
	env := hostEnvironment()
	env.Runtime = "runc"
	clustertest.Suite(t, env, func(t *testing.T) runtime.Cluster {
		b, _ := withRunc(t)
		b.stop()
		b.useSQLite()
		b.open()
		return b.run().Cluster
	})
}

func TestRuntime(t *testing.T) {
	t.Parallel()
	b, env := withRunc(t)
	b.run()
	id := b.begin(env)
	for script, want := range map[string]string{
		"id -u":              "1000",
		"cat /proc/1/cgroup": "",
		"grep -E '^(CapPrm|CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\t' | tr '\n' ' '": "CapPrm:0000000000000000 CapEff:0000000000000000 CapBnd:0000000000000000 NoNewPrivs:1 Seccomp:2",
		"head -c 20M /dev/zero 2>&1 >/workspace/x; wc -c </workspace/x; rm /workspace/x":                     "16777216",
		"touch /tmp/x /dev/shm/x && echo both":                                                               "both",
		"grep -c : /proc/net/dev":                                                                            "1",
		"ls -1 /proc/self/fd | wc -l":                                                                        "4",
	} {
		if got, _ := b.sh(id, script); !strings.HasSuffix(strings.TrimSpace(got), want) {
			t.Errorf("%s\ngot  %q\nwant %q", script, got, want)
		}
	}
	pid := b.agentOf(id)
	if got, want := limitOf(t, pid, "pids", "pids.max"), b.most(48+spec.AgentRoomThreads); got != want { // as with libcontainer
		t.Fatalf("pids.max is %s, want %s", got, want)
	}
	if _, exit := b.sh(id, "exec python3 -c 'x = bytearray(1 << 30)'"); exit.Signal != "SIGKILL" || exit.PerCommand == nil || exit.PerCommand.OOMKills == 0 {
		t.Errorf("a program that needs 1 GiB of 128 MiB: %+v", exit)
	}
	status, err := b.Status(t.Context())
	if err != nil || !strings.Contains(status.Remark, "NAMESPACES with the runtime runc is available") {
		t.Errorf("got %+v, %v, want runc in the remark", status, err)
	}
}

// No program runs with a runtime that leaves it in the machine's network namespace.
func TestRuntimeWithoutIsolationIsRefused(t *testing.T) {
	b, env := withRunc(t)
	b.stop()
	careless := filepath.Join(t.TempDir(), "careless")
	script := fmt.Sprintf(`#!/bin/sh
for a; do
	case $a in --bundle=*) sed -i 's/{"type":"network"},//; s/,{"type":"network"}//' "${a#*=}/config.json" ;; esac
done
exec %s "$@"
`, b.config.Runtimes["runc"].Path)
	executable.Write(t, careless, []byte(script))
	b.config.Runtimes = oci.Runtimes{"runc": {Path: careless}}
	b.open()
	b.run()
	id := runtime.NewRunnerID()
	if err := b.Start(t.Context(), id, env, runtime.PriorityRefill); err != nil {
		t.Fatal(err)
	}
	if r := b.await(id, runtime.RunnerGone); r.GoneReason != runtime.GoneStartFailed || !strings.Contains(r.Message, "net namespace") {
		t.Errorf("a runner of it is %+v, want START_FAILED that names the net namespace", r)
	}
	if err := b.Remove(t.Context(), id); err != nil {
		t.Error(err)
	}
	b.noRunnerLeft()
}

// Only configured runtimes can be requested. Their runners are taken over by the next server like
// any other.
func TestRuntimeOutlivesTheServer(t *testing.T) {
	t.Parallel()
	b, env := withRunc(t)
	b.runKept()
	other := env
	other.Runtime = "crun"
	if err := b.PutEnvironment(t.Context(), other); runtime.CodeOf(err) != runtime.CodeInvalidInput || !strings.Contains(err.Error(), "(runc)") {
		t.Errorf("crun is missing: got %v, want INVALID_INPUT that names runc", err)
	}
	id := b.begin(env)
	pid := b.agentOf(id)
	b.reopened()
	if r, _ := b.runner(id); r.State != runtime.RunnerIdle || b.agentOf(id) != pid {
		t.Errorf("it is %+v", r)
	}
	if err := b.Remove(t.Context(), id); err != nil {
		t.Error(err)
	}
	b.noRunnerLeft()
}
