package cli

import (
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime"
)

func TestExitCodes(t *testing.T) {
	for _, test := range []struct {
		end  ending
		code int
		says string
	}{
		{ending{Outcome: runtime.OutcomeExited}, 0, ""},
		{ending{Outcome: runtime.OutcomeExited, ExitCode: 42}, 42, ""},
		{ending{Outcome: runtime.OutcomeExited, ExitCode: 137}, 137, ""},
		{ending{Outcome: runtime.OutcomeSignaled, Signal: "SIGKILL"}, 137, "SIGKILL"},
		{ending{Outcome: runtime.OutcomeSignaled, Signal: "SIGSEGV"}, 139, "SIGSEGV"},
		{ending{Outcome: runtime.OutcomeSignaled, Signal: "?"}, 125, "?"},
		{ending{Outcome: runtime.OutcomeTimeLimit, Message: "it ran for 1 s"}, 124, "it ran for 1 s (TIME_LIMIT)"},
		{ending{Outcome: runtime.OutcomeMemoryLimit}, 124, "MEMORY_LIMIT"},
		{ending{Outcome: runtime.OutcomeOutputLimit}, 124, "OUTPUT_LIMIT"},
		{ending{Outcome: runtime.OutcomeProcessLimit}, 124, "PROCESS_LIMIT"},
		{ending{Outcome: runtime.OutcomeCPULimit}, 124, "CPU_LIMIT"},
		{ending{Outcome: runtime.OutcomeCancelled}, 130, "CANCELLED"},
		{ending{Outcome: runtime.OutcomeRunnerGone, GoneReason: "DRAINED"}, 125, "DRAINED"},
		{ending{Outcome: runtime.OutcomeLost}, 125, "LOST"},
		{ending{Outcome: runtime.OutcomeFailed, Message: "no such program"}, 125, "no such program"},
		{ending{}, 125, "could not"},
	} {
		code, says := test.end.exitCode()
		if code != test.code || (test.says == "") != (says == "") || !strings.Contains(says, test.says) {
			t.Errorf("%+v: %d %q", test.end, code, says)
		}
	}
}
