package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/test/refusal"
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
	for name, c := range map[string]request.Case{"stdin": {Stdin: large}, "expected": {Expected: large}} {
		_, _, err := b.Batches.Run(asServer(t), request.Run{EnvironmentID: "a", Command: []string{"true"}, Key: name}, request.Batch{Cases: []request.Case{c}})
		refusal.Want(t, err, runtime.CodeQuotaExceeded, "")
	}
}

// TestEnvironmentsShrinkAtTheShare changes the only environment of a tenant that has its share of memory.
func TestEnvironmentsShrinkAtTheShare(t *testing.T) {
	b := keepingMemory(t)
	text := func(n int) []runtime.Variable {
		return []runtime.Variable{{Name: "A", Value: strings.Repeat("x", n)}}
	}
	put := func(in request.Environment) error {
		in.ID = "a"
		_, _, err := b.Environments.Put(asServer(t), in)
		return err
	}
	if err := put(request.Environment{PoolSize: ptr(1), Variables: text(30_000)}); err != nil {
		t.Fatal(err)
	}
	used := func() int64 { n, _ := b.config.Memory.Usage(); return n }
	full := b.config.Memory.Adopt("", 8<<20-used())
	refusal.Want(t, put(request.Environment{Variables: text(30_100)}), runtime.CodeQuotaExceeded, "")
	if err := errors.Join(put(request.Environment{PoolSize: ptr(0)}), put(request.Environment{Variables: text(10_000)})); err != nil {
		t.Error(err)
	}
	full.Free()
	if got := used(); got < 32<<10+20_000 || got > 32<<10+30_000 {
		t.Errorf("%d bytes are kept for the environment", got)
	}
}

// TestSmallThingsNeedNoShare has other tenants that keep all memory. A ticket and a run with a key also work then, and
// a waiting ticket is charged once.
func TestSmallThingsNeedNoShare(t *testing.T) {
	b := keepingMemory(t)
	if _, _, err := b.Environments.Put(asServer(t), request.Environment{ID: "a", PoolSize: ptr(0), Shared: ptr(true)}); err != nil {
		t.Fatal(err)
	}
	b.config.Memory.Adopt("others", 8<<20)
	used := func() int64 { n, _ := b.config.Memory.Usage(); return n }
	before := used()
	starts := make(chan struct{})
	b.fake.OnStart(func(runtime.RunnerID) error { <-starts; return nil })
	waits := b.laterWaits(t, request.Claim{Tenant: "small"})
	if n := used() - before; n < 16<<10 || n >= 32<<10 {
		t.Errorf("%d bytes are kept for a waiting ticket", n)
	}
	if _, err := b.Tickets.Cancel(asServer(t), waits.ID); err != nil {
		t.Error(err)
	}
	wait.For(t, "the ticket has ended", func() bool { return used()-before < 16<<10 })
	close(starts)
	x, err := b.Executions.Run(as(t, "small"), request.Run{EnvironmentID: "a", Command: []string{"true"}, WaitFor: ptr(patient), Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	b.await(t, x.ID)
}
