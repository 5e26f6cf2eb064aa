package local

import (
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

func (b *bench) drain(draining bool) {
	b.t.Helper()
	if err := b.SetDraining(b.t.Context(), draining); err != nil {
		b.t.Fatal(err)
	}
}

// wantDraining waits until draining has this progress.
func (b *bench) wantDraining(claimed, leaving int) runtime.Draining {
	b.t.Helper()
	var d *runtime.Draining
	wait.For(b.t, fmt.Sprintf("%d are claimed, and %d leave", claimed, leaving), func() bool {
		status, err := b.Status(b.t.Context())
		if err != nil || status.Draining == nil || len(status.Problems) != 0 || !strings.HasPrefix(status.Remark, "draining: ") {
			b.t.Fatalf("%+v %v", status, err)
		}
		d = status.Draining
		return d.Claimed == claimed && d.Leaving == leaving
	})
	return *d
}

func claimOf(epoch int) runtime.Claim { return runtime.Claim{Epoch: epoch, ClaimedAt: time.Now()} }

func TestDrain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.runKept()
	idle, claimed := b.begin(hostEnvironment()), b.begin(hostEnvironment())
	if err := b.Mark(t.Context(), claimed, claimOf(1)); err != nil {
		t.Fatal(err)
	}
	b.drain(true)
	if r := b.await(idle, runtime.RunnerGone); r.GoneReason != runtime.GoneDrained {
		t.Errorf("the idle runner: %+v", r)
	}
	began := b.wantDraining(1, 0).Since
	if err := b.Mark(t.Context(), idle, claimOf(1)); runtime.CodeOf(err) != runtime.CodeClusterUnavailable {
		t.Errorf("a claim: got %v, want CLUSTER_UNAVAILABLE", err)
	}
	waits, why := b.wish(hostEnvironment(), runtime.PriorityWaiting)
	if !strings.Contains(why, "drained") {
		t.Errorf("it waits for %q, want the drain", why)
	}
	if err := b.Mark(t.Context(), claimed, claimOf(2)); err != nil {
		t.Errorf("a renewal: %v", err)
	}
	b.expect(claimed, "echo undisturbed", "undisturbed")
	b.drain(true)
	if again := b.wantDraining(1, 0).Since; !again.Equal(began) {
		t.Errorf("it drains since %v, and was begun at %v", again, began)
	}

	// The next server continues draining, and also ends the runners that it finds.
	b.stop()
	b.reopened()
	if since := b.wantDraining(1, 0).Since; !since.Equal(began) {
		t.Errorf("after a restart it drains since %v, and was begun at %v", since, began)
	}
	if why := b.whyWaiting(waits); !strings.Contains(why, "drained") {
		t.Errorf("after a restart it waits for %q, want the drain", why)
	}
	b.expect(claimed, "echo undisturbed", "undisturbed")
	if err := b.Remove(t.Context(), claimed); err != nil {
		t.Error(err)
	}
	b.wantDraining(0, 0)

	b.drain(false)
	if r := b.await(waits, runtime.RunnerIdle); r.State != runtime.RunnerIdle {
		t.Errorf("the queued runner: %+v", r)
	}
	if status, err := b.Status(t.Context()); err != nil || status.Draining != nil || len(status.Problems) > 0 || b.Draining() {
		t.Errorf("afterwards: %+v %v", status, err)
	}
	b.drain(false)
	b.stop()
	b.reopened()
	if b.Draining() {
		t.Error("it drains again after a restart")
	}
}

// A starting runner never becomes idle.
func TestDrainEndsStartingRunners(t *testing.T) {
	b := running(t)
	var ids []runtime.RunnerID
	for range 8 {
		id := runtime.NewRunnerID()
		if err := b.Start(t.Context(), id, hostEnvironment(), runtime.PriorityRefill); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	b.drain(true)
	b.wantDraining(0, 0)
	b.drain(false)
	waited := 0
	for _, id := range ids {
		switch r := b.await(id, runtime.RunnerIdle); {
		case r.State == runtime.RunnerIdle:
			waited++
		case r.GoneReason != runtime.GoneDrained:
			t.Errorf("%+v", r)
		}
	}
	t.Logf("%d of %d had their allocation when it was drained", len(ids)-waited, len(ids))
}

// A runner that gets its allocation while the machine begins to drain is never made.
func TestDrainEndsRunnersPlacedConcurrently(t *testing.T) {
	b := newBench(t)
	b.stop()
	b.config.Parallel = 1
	b.open()
	ctx := t.Context()
	id := runtime.NewRunnerID()
	if err := b.Start(ctx, id, hostEnvironment(), runtime.PriorityRefill); err != nil {
		t.Fatal(err)
	}
	release, err := b.starts.Waiter("", "none", runtime.PriorityWaiting).Enter(ctx) // it can't be made yet
	if err != nil {
		t.Fatal(err)
	}
	b.run()
	wait.For(t, "it is placed", func() bool { return b.scheduler.Stats().Placed == 1 })
	b.drain(true)
	release()
	if r := b.await(id, runtime.RunnerGone); r.GoneReason != runtime.GoneDrained {
		t.Errorf("%+v", r)
	}
	if err := b.Remove(ctx, id); err != nil {
		t.Error(err)
	}
}

// A server is killed after it stored the draining, before it acted on it. The next one acts.
func TestRestoredIdleRunnersAreDrained(t *testing.T) {
	b := newBench(t)
	b.runKept()
	idle := b.begin(hostEnvironment())
	b.stop()
	if err := b.store.SetDraining(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	b.reopened()
	if r := b.await(idle, runtime.RunnerGone); r.GoneReason != runtime.GoneDrained {
		t.Errorf("%+v", r)
	}
	b.wantDraining(0, 0)
}

// A markingStore stores a claim only when the test lets it.
type markingStore struct {
	*memoryStore
	began, goOn chan struct{}
}

func (s *markingStore) MarkRunner(ctx context.Context, id runtime.RunnerID, claim runtime.Claim) error {
	close(s.began)
	<-s.goOn
	return s.memoryStore.MarkRunner(ctx, id, claim)
}

// A claim that is being stored when draining begins keeps its runner.
func TestDrainKeepsRunnerOfAnUnfinishedClaim(t *testing.T) {
	b := newBench(t)
	b.Close()
	store := &markingStore{b.store, make(chan struct{}), make(chan struct{})}
	b.config.Store = store
	b.open()
	b.run()
	id := b.begin(hostEnvironment())
	marked, done := make(chan error, 1), make(chan error, 1)
	go func() { marked <- b.Mark(context.Background(), id, claimOf(1)) }()
	<-store.began
	go func() { done <- b.SetDraining(context.Background(), true) }()
	wait.For(t, "the draining waits for the claim", func() bool {
		select {
		case err := <-done:
			t.Fatalf("it didn't wait for the claim: %v", err)
		default:
		}
		var stacks strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&stacks, 2)
		return strings.Contains(stacks.String(), ").held(")
	})
	close(store.goOn)
	if err := <-marked; err != nil {
		t.Errorf("the claim: %v", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	b.wantDraining(1, 0)
	b.expect(id, "echo mine", "mine")
}
