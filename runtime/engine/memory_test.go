package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/test/wait"
)

// keepingMemory runs an engine that keeps 8 MiB for its callers, so 4 MiB for the only tenant.
func keepingMemory(t *testing.T) *bed {
	t.Helper()
	b := newBed(t)
	b.stop()
	b.config.Memory = quota.NewMemory(8 << 20)
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

// TestEnvironmentsShrinkAtTheShare changes the only environment of a tenant that has its share of memory.
func TestEnvironmentsShrinkAtTheShare(t *testing.T) {
	b := keepingMemory(t)
	text := func(n int) []runtime.Variable {
		return []runtime.Variable{{Name: "A", Value: strings.Repeat("x", n)}}
	}
	put := func(in PutEnvironmentInput) error {
		in.ID = "a"
		_, _, err := b.PutEnvironment(t.Context(), in)
		return err
	}
	if err := put(PutEnvironmentInput{PoolSize: ptr(1), Variables: text(30_000)}); err != nil {
		t.Fatal(err)
	}
	used := func() int64 { n, _ := b.config.Memory.Usage(); return n }
	full := b.config.Memory.Adopt("", 8<<20-used())
	wantCode(t, put(PutEnvironmentInput{Variables: text(30_100)}), runtime.CodeQuotaExceeded, "")
	if err := errors.Join(put(PutEnvironmentInput{PoolSize: ptr(0)}), put(PutEnvironmentInput{Variables: text(10_000)})); err != nil {
		t.Error(err)
	}
	full.Free()
	env, _ := b.Environment("a")
	if got := used(); got != bytesOfEnvironment(env) || got > environmentBytes+30_000 {
		t.Errorf("%d bytes are kept for the environment, want %d", got, bytesOfEnvironment(env))
	}
}

// TestSmallThingsNeedNoShare has other tenants that keep all memory. A ticket and a run with a key also work then, and
// a waiting ticket is charged once.
func TestSmallThingsNeedNoShare(t *testing.T) {
	b := keepingMemory(t)
	if _, _, err := b.PutEnvironment(t.Context(), PutEnvironmentInput{ID: "a", PoolSize: ptr(0), Shared: ptr(true)}); err != nil {
		t.Fatal(err)
	}
	b.config.Memory.Adopt("others", 8<<20)
	used := func() int64 { n, _ := b.config.Memory.Usage(); return n }
	before := used()
	starts := make(chan struct{})
	b.fake.OnStart(func(runtime.RunnerID) error { <-starts; return nil })
	waits := b.laterWaits(t, ClaimInput{Tenant: "small"})
	if n := used() - before; n < waitingBytes || n >= 2*waitingBytes {
		t.Errorf("%d bytes are kept for a waiting ticket", n)
	}
	if _, err := b.CancelTicket(t.Context(), waits.ID); err != nil {
		t.Error(err)
	}
	wait.For(t, "the ticket has ended", func() bool { return used()-before < waitingBytes })
	close(starts)
	x, err := b.Execute(t.Context(), RunInput{EnvironmentID: "a", Tenant: "small", Command: []string{"true"}, WaitFor: ptr(patient), Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	b.await(t, x.ID)
}
