package cli

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/rockpool/rockpool/cli/cases"
	"github.com/rockpool/rockpool/cli/command"
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
		if err := f.print(to, whole, cases.Report{}); !command.ClosedPipe(err) {
			t.Errorf("whole: %t: %v", whole, err)
		}
		_ = to.Close()
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
		{t.Context(), runtime.BatchCompleted, []cases.Result{passed, failed}, command.ExitError(1)},
		{t.Context(), runtime.BatchStopped, []cases.Result{failed, skipped}, command.ExitError(1)},
		{interrupted, runtime.BatchStopped, []cases.Result{failed, skipped}, command.ExitError(130)}, // while a wrong output was stopping it
		{interrupted, runtime.BatchCancelled, []cases.Result{failed, skipped}, command.ExitError(130)},
		{t.Context(), runtime.BatchCancelled, []cases.Result{passed, skipped}, command.ExitError(130)}, // by somebody else
		{interrupted, runtime.BatchCompleted, []cases.Result{passed}, nil},                             // it came too late
		{t.Context(), runtime.BatchRunnerGone, []cases.Result{skipped}, command.ExitError(125)},
		{t.Context(), runtime.BatchFailed, []cases.Result{passed, absent, skipped}, command.ExitError(127)},
		{t.Context(), runtime.BatchFailed, []cases.Result{failed, skipped}, command.ExitError(125)},
	} {
		if err := batchCode(test.ctx, cases.Report{Batch: client.Batch{Outcome: test.outcome}, Cases: test.cases}); !errors.Is(err, test.want) {
			t.Errorf("%+v: got %v, want %v", test, err, test.want)
		}
	}
	if err := batchCode(t.Context(), cases.Report{Batch: client.Batch{Outcome: runtime.BatchBuildFailed}, Build: &absent, Cases: []cases.Result{skipped}}); !errors.Is(err, command.ExitError(127)) {
		t.Errorf("a missing compiler: %v", err)
	}
}
