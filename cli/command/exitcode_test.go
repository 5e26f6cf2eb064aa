package command

import (
	"strings"
	"testing"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

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
		code, says := CodeOf(test.end)
		if code != test.code || (test.says == "") != (says == "") || !strings.Contains(says, test.says) {
			t.Errorf("%+v: %d %q", test.end, code, says)
		}
	}
}
