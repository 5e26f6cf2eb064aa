package session

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rockpool/rockpool/runtime"
)

func TestDecide(t *testing.T) {
	limits := Limits{FileSize: 100, Time: 2 * time.Second, Output: 1024, MemoryMiB: 64, Processes: 32}
	for name, test := range map[string]struct {
		facts Facts
		want  runtime.End
	}{
		"exit 0":                         {Facts{Exit: &Exit{}}, runtime.End{Outcome: runtime.OutcomeExited, Message: "exited with code 0"}},
		"exit 42":                        {Facts{Exit: &Exit{Code: 42}}, runtime.End{Outcome: runtime.OutcomeExited, ExitCode: 42, Message: "exited with code 42"}},
		"exit 137 without a kill":        {Facts{Exit: &Exit{Code: 137}, Alone: true}, runtime.End{Outcome: runtime.OutcomeExited, ExitCode: 137, Message: "exited with code 137"}},
		"a signal":                       {Facts{Exit: &Exit{Signal: "SIGSEGV"}}, runtime.End{Outcome: runtime.OutcomeSignaled, Signal: "SIGSEGV", Message: "ended by SIGSEGV: it used memory that isn't its own, for example by a null pointer or an index out of range"}},
		"a signal without a usual cause": {Facts{Exit: &Exit{Signal: "SIGTERM"}}, runtime.End{Outcome: runtime.OutcomeSignaled, Signal: "SIGTERM", Message: "ended by SIGTERM"}},
		"file size":                      {Facts{Exit: &Exit{Signal: "SIGXFSZ"}}, runtime.End{Outcome: runtime.OutcomeSignaled, Signal: "SIGXFSZ", Message: "ended by SIGXFSZ: it wrote more than its file size limit of 100 bytes"}},
		"time limit":                     {Facts{Exit: &Exit{Signal: "SIGKILL", Limit: runtime.OutcomeTimeLimit}, OOMKills: 1, Alone: true}, runtime.End{Outcome: runtime.OutcomeTimeLimit, Message: "it ran into its time limit of 2 s; the kernel killed 1 of its processes because the runner's memory was full"}},
		"time limit beside a neighbour out of memory": {Facts{Exit: &Exit{Signal: "SIGKILL", Limit: runtime.OutcomeTimeLimit}, OOMKills: 1},
			runtime.End{Outcome: runtime.OutcomeTimeLimit, Message: "it ran into its time limit of 2 s"}},
		"a stack overflow": {Facts{Exit: &Exit{Signal: "SIGSEGV"}, PeakMemory: 60 << 20}, runtime.End{Outcome: runtime.OutcomeSignaled, Signal: "SIGSEGV",
			Message: "ended by SIGSEGV: its memory of 64 MiB was nearly full; probably its stack overflowed, for example by an endless recursion"}},
		"output limit": {Facts{Exit: &Exit{Limit: runtime.OutcomeOutputLimit}}, runtime.End{Outcome: runtime.OutcomeOutputLimit, Message: "it ran into its output limit of 1 KiB"}},
		"cancelled":    {Facts{Exit: &Exit{Signal: "SIGTERM", Killed: true}, Killed: runtime.OutcomeCancelled}, runtime.End{Outcome: runtime.OutcomeCancelled, Message: "cancelled"}},
		"cancelled too late": {Facts{Exit: &Exit{Code: 3}, Killed: runtime.OutcomeCancelled},
			runtime.End{Outcome: runtime.OutcomeExited, ExitCode: 3, Message: "exited with code 3"}},
		"out of memory": {Facts{Exit: &Exit{Signal: "SIGKILL"}, OOMKills: 1, Alone: true},
			runtime.End{Outcome: runtime.OutcomeMemoryLimit, Message: "it ran into its runner's memory limit of 64 MiB"}},
		"a child out of memory": {Facts{Exit: &Exit{Code: 1}, OOMKills: 1, Alone: true},
			runtime.End{Outcome: runtime.OutcomeMemoryLimit, Message: "it ran into its runner's memory limit of 64 MiB"}},
		"a child out of memory, exit 0": {Facts{Exit: &Exit{}, OOMKills: 1, Alone: true},
			runtime.End{Outcome: runtime.OutcomeExited, Message: "exited with code 0; the kernel killed 1 of its processes because the runner's memory was full"}},
		"a neighbour out of memory": {Facts{Exit: &Exit{Code: 1}, OOMKills: 1},
			runtime.End{Outcome: runtime.OutcomeExited, ExitCode: 1, Message: "exited with code 1"}},
		"out of memory beside a neighbour": {Facts{Exit: &Exit{Code: 1}, OOMKills: 1, PerExecution: true},
			runtime.End{Outcome: runtime.OutcomeMemoryLimit, Message: "it ran into its runner's memory limit of 64 MiB"}},
		"too many processes beside a neighbour": {Facts{Exit: &Exit{Signal: "SIGKILL"}, Forks: 1, PerExecution: true},
			runtime.End{Outcome: runtime.OutcomeProcessLimit, Message: "it ran into its runner's limit of 32 processes"}},
		"a neighbour with too many processes": {Facts{Exit: &Exit{Code: 2}, Forks: 1},
			runtime.End{Outcome: runtime.OutcomeExited, ExitCode: 2, Message: "exited with code 2"}},
		"too many processes": {Facts{Exit: &Exit{Code: 2}, Forks: 3, Alone: true},
			runtime.End{Outcome: runtime.OutcomeProcessLimit, Message: "it ran into its runner's limit of 32 processes"}},
		"refused forks, exit 0": {Facts{Exit: &Exit{}, Forks: 3, PerExecution: true},
			runtime.End{Outcome: runtime.OutcomeExited, Message: "exited with code 0; it couldn't start 3 processes or threads, because of its limit of 32"}},
		"runner gone": {Facts{Gone: runtime.GoneAgentDied},
			runtime.End{Outcome: runtime.OutcomeRunnerGone, GoneReason: runtime.GoneAgentDied, Message: "its runner is gone: the agent inside it died"}},
		"exit before the runner ended": {Facts{Exit: &Exit{}, Gone: runtime.GoneAgentDied}, runtime.End{Outcome: runtime.OutcomeExited, Message: "exited with code 0"}},
		"no evidence":                  {Facts{}, runtime.End{Outcome: runtime.OutcomeLost, Message: "no evidence of its end survived"}},
		"refused":                      {Facts{Refused: "nonesuch: not found"}, runtime.End{Outcome: runtime.OutcomeFailed, Message: "nonesuch: not found"}},
	} {
		t.Run(name, func(t *testing.T) {
			test.facts.Limits = limits
			if diff := cmp.Diff(test.want, Decide(test.facts)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestMessagesNameTheLimit checks that messages about limits contain the limit, its value and its unit.
func TestMessagesNameTheLimit(t *testing.T) {
	limits := Limits{Time: 1500 * time.Millisecond, CPU: time.Minute, Output: 3 << 20, MemoryMiB: 64, Processes: 32}
	own := limits
	own.OfExecution, own.Output = 5, 1_000_001
	for _, test := range []struct {
		outcome runtime.Outcome
		limits  Limits
		want    string
	}{
		{runtime.OutcomeTimeLimit, limits, "time limit of 1.5 s"},
		{runtime.OutcomeCPULimit, limits, "CPU limit of 60 s"},
		{runtime.OutcomeOutputLimit, limits, "output limit of 3 MiB"},
		{runtime.OutcomeOutputLimit, own, "output limit of 1000001 bytes"},
		{runtime.OutcomeMemoryLimit, limits, "memory limit of 64 MiB"},
		{runtime.OutcomeProcessLimit, limits, "limit of 32 processes"},
		{runtime.OutcomeProcessLimit, own, "limit of 5 processes"},
	} {
		if got := limitEnd(test.outcome, test.limits); got.Outcome != test.outcome || !strings.Contains(got.Message, test.want) {
			t.Errorf("got %+v, want %s with %q", got, test.outcome, test.want)
		}
	}
}

// TestEveryGoneReasonHasAMessage reads the reasons where they are declared.
func TestEveryGoneReasonHasAMessage(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../runner.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	reasons := 0
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		kind, ok := spec.Type.(*ast.Ident)
		if !ok || kind.Name != "GoneReason" {
			return true
		}
		for _, value := range spec.Values {
			name, err := strconv.Unquote(value.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			reasons++
			said := Decide(Facts{Gone: runtime.GoneReason(name)}).Message
			if words, ok := strings.CutPrefix(said, "its runner is gone: "); !ok || words == "" || strings.Contains(words, name) {
				t.Errorf("%s: %q", name, said)
			}
		}
		return true
	})
	if reasons != len(goneWords) {
		t.Errorf("%d reasons, %d in words", reasons, len(goneWords))
	}
}

// TestNoExitCodeWithoutEvidence checks that, without an exit from the agent, no facts lead to
// EXITED or SIGNALED.
func TestNoExitCodeWithoutEvidence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := Facts{
			Killed:   rapid.SampledFrom([]runtime.Outcome{"", runtime.OutcomeCancelled, runtime.OutcomeOutputLimit}).Draw(t, "killed"),
			Gone:     rapid.SampledFrom([]runtime.GoneReason{"", runtime.GoneReleased, runtime.GoneUnknown}).Draw(t, "gone"),
			OOMKills: rapid.Int64Range(0, 2).Draw(t, "oom"),
			Forks:    rapid.Int64Range(0, 2).Draw(t, "forks"),
			Alone:    rapid.Bool().Draw(t, "alone"),
		}
		if o := Decide(f).Outcome; o == runtime.OutcomeExited || o == runtime.OutcomeSignaled || o == "" {
			t.Fatalf("%+v gives %q", f, o)
		}
	})
}

// TestStatesOnlyMoveForward walks random transitions: states never go back, and the first outcome stays.
func TestStatesOnlyMoveForward(t *testing.T) {
	order := map[runtime.ExecutionState]int{runtime.ExecutionPending: 0, runtime.ExecutionRunning: 1, runtime.ExecutionFinished: 2}
	rapid.Check(t, func(t *rapid.T) {
		x := runtime.Execution{State: runtime.ExecutionPending}
		at := time.Unix(1, 0)
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			before := x
			at = at.Add(time.Second)
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				x = Started(x, at)
			case 1:
				x = Printed(x, at)
			case 2:
				x = Finished(x, runtime.End{Outcome: rapid.SampledFrom([]runtime.Outcome{runtime.OutcomeLost, runtime.OutcomeExited}).Draw(t, "outcome")}, runtime.Usage{}, at)
			}
			if order[x.State] < order[before.State] {
				t.Fatalf("%s became %s", before.State, x.State)
			}
			if before.State == runtime.ExecutionFinished && x.End != before.End {
				t.Fatalf("the outcome changed from %v to %v", before.End, x.End)
			}
			if !before.Timestamps.StartedAt.IsZero() && !x.Timestamps.StartedAt.Equal(before.Timestamps.StartedAt) {
				t.Fatal("started twice")
			}
		}
	})
}
