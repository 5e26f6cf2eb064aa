package warm

import (
	"testing"

	"github.com/rockpool/rockpool/agent"
)

// TestTheRunnersThreadsAreNoReason: an agent sets the number of threads of each command to the runner's processors.
func TestTheRunnersThreadsAreNoReason(t *testing.T) {
	z := &zygote{wanted: agent.Warm{Env: []string{"OMP_NUM_THREADS=2"}}}
	for value, want := range map[string]string{"1": "", "2": "", "3": "the variable OMP_NUM_THREADS isn't 1"} {
		if got := z.variables([]string{"OMP_NUM_THREADS=" + value}); got != want {
			t.Errorf("%s: %q, want %q", value, got, want)
		}
	}
}
