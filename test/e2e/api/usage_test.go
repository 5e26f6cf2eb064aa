package api

import (
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/wait"
)

// A usage is an execution's usage, now or at its end, as the API shows it.
type usage struct {
	At                                           string
	WallMs, UserMs, SystemMs, OutputBytes        int64
	Memory, PeakMemory, Processes, PeakProcesses *int64
}

// TestE2EUsageWhileItRuns: while a program holds 100 MiB, its usageNow and its runner's usage show
// them. At its end it has usage, which is null before, and no usageNow.
func TestE2EUsageWhileItRuns(t *testing.T) {
	b := bed.Open(t)
	b.Put(t, object{"id": "usage", "poolSize": 1, "resources": object{"memoryMiB": 256, "processes": 64}})
	runner := b.Claim(t, "usage")
	program := `import sys, time
began = time.process_time()
while time.process_time() < began + 0.3: pass
held = b"x" * (100 << 20)
print("holds", flush=True)
sys.stdin.read()`
	id := b.Start(t, object{"runnerId": runner, "command": []string{"python3", "-c", program}, "stdin": true})
	var got struct {
		Execution struct {
			State           string
			Usage, UsageNow *usage
		}
		Runner struct {
			Usage *struct {
				CPUMs, MemoryLimit, ProcessLimit int64
				Memory, Processes                *int64
			}
		}
		Executions struct {
			Nodes []struct{ Usage, UsageNow *usage }
		}
	}
	const query = `query($id: ID!, $runner: ID!) {
		execution(id: $id) { state usage { ...u } usageNow { ...now } }
		runner(id: $runner) { usage { cpuMs memory memoryLimit processes processLimit at } }
		executions(runnerId: $runner) { nodes { usage { ...u } usageNow { ...now } } }
	} fragment u on Usage { wallMs userMs systemMs outputBytes peakMemory peakProcesses }
	fragment now on UsageNow { at wallMs userMs systemMs outputBytes memory peakMemory processes peakProcesses }`
	var seen usage
	wait.For(t, "100 MiB are held", func() bool {
		b.Call(t, query, object{"id": id, "runner": runner}, &got)
		if got.Execution.State == "FINISHED" {
			t.Fatalf("it ended; it was seen with %+v", seen)
		}
		now := got.Execution.UsageNow
		if now == nil || now.Memory == nil || got.Runner.Usage == nil {
			return false
		}
		seen = *now
		return *now.Memory >= 100<<20 && now.OutputBytes == 6
	})
	b.Call(t, query, object{"id": id, "runner": runner}, &got) // within one answer, the runner's part may be older than the execution's
	if got.Execution.Usage != nil || seen.At == "" {
		t.Errorf("while it runs its usage is %+v; it was measured at %q", got.Execution.Usage, seen.At)
	}
	if seen.UserMs+seen.SystemMs < 250 || seen.WallMs < 250 || *seen.Processes != 1 || *seen.Memory > 200<<20 || *seen.PeakMemory < *seen.Memory {
		t.Errorf("it uses %+v", seen)
	}
	if r := got.Runner.Usage; r.Memory == nil || *r.Memory < 100<<20 || r.MemoryLimit != 256<<20 || r.ProcessLimit != 64 || r.Processes == nil || *r.Processes < 1 || r.CPUMs < 250 {
		t.Errorf("its runner: %+v", r)
	}
	if nodes := got.Executions.Nodes; len(nodes) != 1 || nodes[0].Usage != nil || nodes[0].UsageNow == nil || nodes[0].UsageNow.Memory == nil {
		t.Errorf("the list: %+v", nodes)
	}
	b.Call(t, `mutation($in: WriteStdinInput!) { writeStdin(input: $in) { offset } }`, object{"in": object{"executionId": id, "offset": 0, "close": true}}, nil)
	b.Await(t, id)
	b.Call(t, query, object{"id": id, "runner": runner}, &got)
	end := got.Execution.Usage
	if end == nil || got.Execution.UsageNow != nil || end.WallMs < seen.WallMs || end.UserMs+end.SystemMs < seen.UserMs+seen.SystemMs ||
		end.OutputBytes != 6 || *end.PeakMemory < *seen.PeakMemory || *end.PeakProcesses < *seen.PeakProcesses {
		t.Errorf("at the end it had used %+v, while it ran %+v", end, seen)
	}
}

// TestE2EEveryLimitIsNamed: an execution that a limit ended names the limit and its value.
func TestE2EEveryLimitIsNamed(t *testing.T) {
	b := bed.Open(t)
	b.Put(t, object{"id": "limits", "poolSize": 1, "resources": object{"memoryMiB": 64, "processes": 32}})
	b.NamesEveryLimit(t, b.Claim(t, "limits"), 64, 32)
}
