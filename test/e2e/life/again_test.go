package life

import (
	"fmt"
	"testing"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/wait"
)

// An ending is one way in which an execution ends.
type ending struct {
	input   object
	end     func(t *testing.T, b bed.Bed, execution string) // while it runs; nil means it ends on its own
	outcome runtime.Outcome
}

// call returns an ending by a mutation, once the execution's sleep runs.
func call(mutation string) func(t *testing.T, b bed.Bed, execution string) {
	return func(t *testing.T, b bed.Bed, execution string) {
		t.Helper()
		wait.For(t, "it runs", func() bool { return len(bed.Running(bed.Cgroups, "sleep")) == 1 })
		b.Call(t, mutation, object{"id": execution}, nil)
	}
}

// TestE2EExecutionsRunAfterEachEnd: however an execution ended, the next ones in the same runner run
// to their end, three times each.
func TestE2EExecutionsRunAfterEachEnd(t *testing.T) {
	b := bed.Open(t)
	// Small limits are reached soon, also in a virtual machine without KVM.
	b.Put(t, object{"id": "again", "poolSize": 1, "resources": object{"memoryMiB": 64, "processes": 24}})
	const loop = "(setsid sleep 1000 &); while :; do :; done"
	forks := object{"shell": "i=0; while [ $i -lt 60 ]; do sleep 1000 & i=$((i+1)); done; wait"}
	const cancel, kill = `mutation($id: ID!) { cancelExecution(id: $id) { execution { id } } }`, `mutation($id: ID!) { signalExecution(input: {executionId: $id, signal: "KILL"}) { execution { id } } }`
	for name, first := range map[string]ending{
		"a time limit":                       {input: object{"shell": loop, "timeLimit": 1}, outcome: runtime.OutcomeTimeLimit},
		"a limit of CPU time":                {input: object{"shell": loop, "limits": object{"cpuSeconds": 1}}, outcome: runtime.OutcomeCPULimit},
		"an output limit":                    {input: object{"shell": "yes & sleep 1000", "limits": object{"outputBytes": 65536}}, outcome: runtime.OutcomeOutputLimit},
		"the runner's limit of processes":    {input: forks, outcome: runtime.OutcomeProcessLimit},
		"the execution's limit of processes": {input: object{"shell": forks["shell"], "limits": object{"processes": 5}}, outcome: runtime.OutcomeProcessLimit},
		"the memory limit":                   {input: object{"shell": "sleep 1000 & head -c 400000000 /dev/zero | tail"}, outcome: runtime.OutcomeMemoryLimit},
		"a cancellation":                     {input: object{"shell": loop}, end: call(cancel), outcome: runtime.OutcomeCancelled},
		"signal KILL":                        {input: object{"shell": loop}, end: call(kill), outcome: runtime.OutcomeSignaled},
		"an exit that leaves a daemon":       {input: object{"shell": "setsid sleep 1000 & echo two"}, outcome: runtime.OutcomeExited},
		"a terminal":                         {input: object{"shell": loop, "terminal": object{"columns": 80, "rows": 24}}, end: call(cancel), outcome: runtime.OutcomeCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			runner := b.Claim(t, "again")
			for round := range 3 {
				input := object{"runnerId": runner}
				for key, value := range first.input {
					input[key] = value
				}
				id := b.Start(t, input)
				if first.end != nil {
					first.end(t, b, id)
				}
				if got := b.Await(t, id); got.Outcome != first.outcome {
					t.Fatalf("round %d: it ended with %s (%s), want %s", round, got.Outcome, got.Message, first.outcome)
				}
				wantThree(t, b, runner, round)
			}
		})
	}
}

// wantThree runs three executions, which must print and exit.
func wantThree(t *testing.T, b bed.Bed, runner string, round int) {
	t.Helper()
	for i := range 3 {
		want := fmt.Sprint(round, i, "\n")
		got := b.Run(t, object{"runnerId": runner, "command": []string{"echo", fmt.Sprint(round, i)}})
		if got.Outcome != runtime.OutcomeExited || got.ExitCode == nil || *got.ExitCode != 0 || got.Stream("STDOUT") != want {
			t.Fatalf("round %d, execution %d afterwards: %s (%s) with the output %q, want %q", round, i, got.Outcome, got.Message, got.Stream("STDOUT"), want)
		}
	}
}

// TestE2ECasesRunAfterOneThatLoops: a case that loops doesn't fail the later ones, in three batches
// of one runner.
func TestE2ECasesRunAfterOneThatLoops(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	for round := range 3 {
		one, limit := "case $1 in loop) (setsid sleep 1000 &); while :; do :; done;; *) echo $1;; esac", 60
		out, err := client.StartBatch(t.Context(), b.Client, client.StartExecutionInput{RunnerId: runner, Shell: &one, TimeLimit: &limit, Cases: []client.CaseInput{
			{Args: []string{"1"}}, {Args: []string{"loop"}, TimeLimit: new(1)}, {Args: []string{"3"}}, {Args: []string{"4"}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		id := out.StartExecution.Batch.Id
		if err := b.Client.FollowBatch(t.Context(), id, nil, func(client.BatchEvent) error { return nil }); err != nil {
			t.Fatal(err)
		}
		batch, err := client.GetBatch(t.Context(), b.Client, id, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{"1\n", "", "3\n", "4\n"} {
			c := batch.Batch.Cases.Nodes[i]
			if c.Execution == nil {
				t.Fatalf("round %d: case %d is %s", round, i+1, c.State)
			}
			if got := b.Await(t, c.Execution.Id); got.Stream("STDOUT") != want || (got.Outcome == runtime.OutcomeExited) != (want != "") {
				t.Fatalf("round %d: case %d ended with %s (%s) and printed %q, want %q", round, i+1, got.Outcome, got.Message, got.Stream("STDOUT"), want)
			}
		}
	}
}

// TestE2EWarmExecutionsRunAfterEachEnd: a preloaded interpreter starts executions after one that was
// ended.
func TestE2EWarmExecutionsRunAfterEachEnd(t *testing.T) {
	b := bed.Open(t)
	b.Put(t, object{"id": "warm-again", "poolSize": 1, "warm": object{"interpreter": "PYTHON", "modules": []string{"json"}}})
	runner := b.Claim(t, "warm-again")
	python := func(code string, limit int) client.Result {
		t.Helper()
		id := b.Start(t, object{"runnerId": runner, "command": []string{"python3", "-c", code}, "timeLimit": limit})
		got := b.Await(t, id)
		var s startedExecution
		b.Call(t, `query($id: ID!) { execution(id: $id) { startedWarm coldReason } }`, object{"id": id}, &s)
		if e := s.Execution; e.StartedWarm == nil || !*e.StartedWarm {
			reason := "none"
			if e.ColdReason != nil {
				reason = *e.ColdReason
			}
			t.Fatalf("it was started cold: %s", reason)
		}
		return got
	}
	for round := range 3 {
		if got := python("import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)\nwhile True: pass", 2); got.Outcome != runtime.OutcomeTimeLimit {
			t.Fatalf("round %d: it ended with %s (%s)", round, got.Outcome, got.Message)
		}
		for i := range 3 {
			if got := python(fmt.Sprintf("print(%d)", i), 1200); got.Outcome != runtime.OutcomeExited || got.Stream("STDOUT") != fmt.Sprint(i, "\n") {
				t.Fatalf("round %d, execution %d afterwards: %s (%s) with the output %q", round, i, got.Outcome, got.Message, got.Stream("STDOUT"))
			}
		}
	}
}
