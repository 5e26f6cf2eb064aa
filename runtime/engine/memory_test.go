package engine

import (
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/share"
)

// keepingMemory runs an engine that keeps 8 MiB for its callers, so 4 MiB for the only tenant.
func keepingMemory(t *testing.T) *bed {
	t.Helper()
	b := newBed(t)
	b.stop()
	b.config.Memory = share.NewMemory(8 << 20)
	b.start(t)
	return b
}

// TestRunsThatContinueKeepMemory runs a batch with a key, for each kind of a case's texts.
func TestRunsThatContinueKeepMemory(t *testing.T) {
	b := keepingMemory(t)
	b.environment(t, "a", 0)
	large := make([]byte, 5<<20)
	for name, c := range map[string]CaseInput{"stdin": {Stdin: large}, "expected": {Expected: large}} {
		_, _, err := b.RunBatch(t.Context(), RunInput{EnvironmentID: "a", Command: []string{"true"}, Key: name}, BatchInput{Cases: []CaseInput{c}})
		wantCode(t, err, runtime.CodeQuotaExceeded, "")
	}
}
