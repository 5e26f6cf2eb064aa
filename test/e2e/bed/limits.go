package bed

import (
	"fmt"
	"testing"

	"github.com/rockpool/rockpool/runtime"
)

// NamesEveryLimit runs executions into each limit, in a runner with this much memory and this many
// processes. Each message must name the limit with its value and unit.
func (b Bed) NamesEveryLimit(t *testing.T, runner string, memoryMiB, processes int) {
	t.Helper()
	forks := func(n int) string {
		return fmt.Sprintf("i=0; while [ $i -lt %d ]; do sleep 1000 & i=$((i+1)); done; wait", n)
	}
	for _, test := range []struct {
		shell   string
		limits  object
		seconds int
		outcome runtime.Outcome
		message string
	}{
		{"sleep 1000", nil, 1, runtime.OutcomeTimeLimit, "it ran into its time limit of 1 s"},
		{"while :; do :; done", object{"cpuSeconds": 1}, 100, runtime.OutcomeCPULimit, "it ran into its CPU limit of 1 s"},
		{"yes", object{"outputBytes": 65536}, 100, runtime.OutcomeOutputLimit, "it ran into its output limit of 64 KiB"},
		{forks(10), object{"processes": 5}, 100, runtime.OutcomeProcessLimit, "it ran into its limit of 5 processes"},
		{forks(300), nil, 100, runtime.OutcomeProcessLimit, fmt.Sprintf("it ran into its runner's limit of %d processes", processes)},
		{"head -c 2000000000 /dev/zero | tail -c 1900000000 >/dev/null", nil, 100, runtime.OutcomeMemoryLimit, fmt.Sprintf("it ran into its runner's memory limit of %d MiB", memoryMiB)},
	} {
		in := object{"runnerId": runner, "shell": test.shell, "timeLimit": test.seconds}
		if test.limits != nil {
			in["limits"] = test.limits
		}
		if got := b.Run(t, in); got.Outcome != test.outcome || got.Message != test.message {
			t.Errorf("%s: got %s with the message %q, want %s with %q", test.shell, got.Outcome, got.Message, test.outcome, test.message)
		}
		if got := b.Shell(t, runner, "echo usable"); got.Stream("STDOUT") != "usable\n" {
			t.Fatalf("after %s: %s (%s)", test.shell, got.Outcome, got.Message)
		}
	}
}
