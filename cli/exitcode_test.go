package cli

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/cli/cases"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

// A report that nobody reads ends the command as SIGPIPE would.
func TestUnreadReportsCloseThePipe(t *testing.T) {
	for _, whole := range []bool{true, false} {
		from, to, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_ = from.Close()
		f := caseFlags{}
		f.JSON = true
		if err := f.print(to, whole, cases.Report{}); !closedPipe(err) {
			t.Errorf("whole: %t: %v", whole, err)
		}
		_ = to.Close()
	}
}

func TestExitCodes(t *testing.T) {
	for _, test := range []struct {
		end  client.Ending
		code int
		says string
	}{
		{client.Ending{Outcome: runtime.OutcomeExited}, 0, ""},
		{client.Ending{Outcome: runtime.OutcomeExited, ExitCode: new(42)}, 42, ""},
		{client.Ending{Outcome: runtime.OutcomeExited, ExitCode: new(137)}, 137, ""},
		{client.Ending{Outcome: runtime.OutcomeSignaled, Signal: "SIGKILL"}, 137, "SIGKILL"},
		{client.Ending{Outcome: runtime.OutcomeSignaled, Signal: "SIGSEGV"}, 139, "SIGSEGV"},
		{client.Ending{Outcome: runtime.OutcomeSignaled, Signal: "?"}, 125, "?"},
		{client.Ending{Outcome: runtime.OutcomeTimeLimit, Message: "it ran for 1 s"}, 124, "it ran for 1 s (TIME_LIMIT)"},
		{client.Ending{Outcome: runtime.OutcomeMemoryLimit}, 124, "MEMORY_LIMIT"},
		{client.Ending{Outcome: runtime.OutcomeOutputLimit}, 124, "OUTPUT_LIMIT"},
		{client.Ending{Outcome: runtime.OutcomeProcessLimit}, 124, "PROCESS_LIMIT"},
		{client.Ending{Outcome: runtime.OutcomeCPULimit}, 124, "CPU_LIMIT"},
		{client.Ending{Outcome: runtime.OutcomeCancelled}, 130, "CANCELLED"},
		{client.Ending{Outcome: runtime.OutcomeRunnerGone, GoneReason: "DRAINED"}, 125, "DRAINED"},
		{client.Ending{Outcome: runtime.OutcomeLost}, 125, "LOST"},
		{client.Ending{Outcome: runtime.OutcomeFailed, Message: "no such program"}, 125, "no such program"},
		{client.Ending{Outcome: runtime.OutcomeFailed, ExitCode: new(127), Message: "nonesuch: command not found"}, 127, "nonesuch: command not found"},
		{client.Ending{}, 125, "couldn't"},
	} {
		code, says := exitCode(test.end)
		if code != test.code || (test.says == "") != (says == "") || !strings.Contains(says, test.says) {
			t.Errorf("%+v: %d %q", test.end, code, says)
		}
	}
}

func TestExitCodesOfCases(t *testing.T) {
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	absent := cases.Result{State: runtime.CaseFailed, Outcome: runtime.OutcomeFailed, ExitCode: new(127)}
	passed, failed, skipped := cases.Result{State: runtime.CasePassed}, cases.Result{State: runtime.CaseFailed}, cases.Result{State: runtime.CaseSkipped}
	for _, test := range []struct {
		ctx     context.Context
		outcome runtime.BatchOutcome
		cases   []cases.Result
		want    error
	}{
		{t.Context(), runtime.BatchCompleted, []cases.Result{passed}, nil},
		{t.Context(), runtime.BatchCompleted, []cases.Result{passed, failed}, ExitError(1)},
		{t.Context(), runtime.BatchStopped, []cases.Result{failed, skipped}, ExitError(1)},
		{interrupted, runtime.BatchStopped, []cases.Result{failed, skipped}, ExitError(130)}, // while a wrong output was stopping it
		{interrupted, runtime.BatchCancelled, []cases.Result{failed, skipped}, ExitError(130)},
		{t.Context(), runtime.BatchCancelled, []cases.Result{passed, skipped}, ExitError(130)}, // by somebody else
		{interrupted, runtime.BatchCompleted, []cases.Result{passed}, nil},                     // it came too late
		{t.Context(), runtime.BatchRunnerGone, []cases.Result{skipped}, ExitError(125)},
		{t.Context(), runtime.BatchFailed, []cases.Result{passed, absent, skipped}, ExitError(127)},
		{t.Context(), runtime.BatchFailed, []cases.Result{failed, skipped}, ExitError(125)},
	} {
		if err := batchCode(test.ctx, cases.Report{Batch: client.Batch{Outcome: test.outcome}, Cases: test.cases}); !errors.Is(err, test.want) {
			t.Errorf("%+v: %v", test, err)
		}
	}
	if err := batchCode(t.Context(), cases.Report{Batch: client.Batch{Outcome: runtime.BatchBuildFailed}, Build: &absent, Cases: []cases.Result{skipped}}); !errors.Is(err, ExitError(127)) {
		t.Errorf("a missing compiler: %v", err)
	}
}
