package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

// TestE2EIdleRunnersGiveWay reserves nearly the whole machine by the idle runner of one environment.
// A claim of another one gets a runner nevertheless, and the idle runner comes back after that claim
// has ended. A held runner never gives way.
func TestE2EIdleRunnersGiveWay(t *testing.T) {
	need.Machine(t)
	data := bed.DataDir(t)
	p := bed.Serve(t, data, bed.Rockpool(t), "serve", "--data", data, "--memory-overcommit", "0.1")
	var first struct{ Environments []struct{ ID string } }
	p.Call(t, `{ environments { id } }`, nil, &first)
	for _, env := range first.Environments {
		p.Call(t, `mutation($id: ID!) { deleteEnvironment(input: {id: $id}) { deleted } }`, object{"id": env.ID}, nil)
	}
	var machine int
	for line := range strings.Lines(readText(t, "/proc/meminfo")) {
		if n, _ := fmt.Sscanf(line, "MemTotal: %d kB", &machine); n == 1 {
			break
		}
	}
	capacity := machine >> 10 / 10 // MiB
	put := func(id string, size, mib int) {
		t.Helper()
		p.Call(t, `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`,
			object{"in": object{"id": id, "poolSize": size, "resources": object{"memoryMiB": mib}}}, nil)
	}
	put("huge", 1, capacity*7/10)
	idle := p.Full(t, "huge", 1)
	put("small", 0, capacity*4/10)
	var claimed struct {
		ClaimRunner struct{ Runner struct{ ID string } }
	}
	p.Call(t, `mutation { claimRunner(input: {environmentId: "small", waitFor: 100}) { runner { id } } }`, nil, &claimed)
	var pool struct {
		Environment struct {
			Pool struct{ Idle int }
		}
	}
	p.Call(t, `{ environment(id: "huge") { pool { idle } } }`, nil, &pool)
	if pool.Environment.Pool.Idle != 0 {
		t.Error("the idle runner still exists")
	}
	p.Refused(t, `mutation { claimRunner(input: {environmentId: "huge", waitFor: 2}) { runner { id } } }`, nil, runtime.CodeNoRunnerAvailable, "") // held ones stay
	p.Call(t, `mutation($id: ID!) { releaseRunner(id: $id) { released } }`, object{"id": claimed.ClaimRunner.Runner.ID}, nil)
	wait.For(t, "the idle runner is replaced", func() bool {
		for id, r := range p.RunnersOf(t, "huge") {
			if idle[id].ID == "" && r.State == "IDLE" {
				return true
			}
		}
		return false
	})
	p.Finish(t)
}
