package local

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// crash leaves everything as a SIGKILL of the server does: nothing is closed
// but what the kernel closes.
func (b *bench) crash() { b.Cluster.close() }

func TestRestart(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	worked := make(chan struct{})
	go func() { // Run without its end
		b.work(ctx)
		close(worked)
	}()
	idle, claimed, dead := b.begin(hostEnvironment()), b.begin(hostEnvironment()), b.begin(hostEnvironment())
	claim := runtime.Claim{Epoch: 1, Key: "k", ClaimedAt: time.Now()}
	for _, id := range []runtime.RunnerID{claimed, dead} {
		if err := b.Mark(t.Context(), id, claim); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	<-worked
	queued := runtime.NewRunnerID()
	if err := b.Start(t.Context(), queued, hostEnvironment(), runtime.PriorityRefill); err != nil {
		t.Fatal(err)
	}
	if n := len(b.processes()); n != 3 {
		t.Fatalf("%d processes run, not 3", n)
	}
	old := b.Cluster
	b.crash()
	b.open()
	old.tasks.Wait() // its watchers see the processes end
	b.noRunnerLeft()
	b.run()
	for _, id := range []runtime.RunnerID{idle, queued} {
		if r, ok := b.runner(id); ok {
			t.Errorf("a runner that nobody held is listed: %+v", r)
		}
	}
	r, ok := b.runner(claimed)
	if !ok || r.State != runtime.RunnerGone || r.GoneReason != runtime.GoneStoppedOutside || !r.Claim.Equal(claim) {
		t.Errorf("the claimed runner is %+v", r)
	}
	for _, id := range []runtime.RunnerID{claimed, dead} {
		if err := b.Remove(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	b.expect(b.begin(hostEnvironment()), "echo hi", "hi")
}

// The helper and the server die in the middle of a create, at 25 moments, and
// on a busy machine at more, until there is something to clean up.
func TestKilledCreates(t *testing.T) {
	b := newBench(t)
	create := func(within time.Duration) time.Duration { // then it gets SIGKILL
		e := newEntry(runtime.Runner{ID: runtime.NewRunnerID(), Environment: hostEnvironment(), State: runtime.RunnerStarting}, 0)
		if err := b.record(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		began := time.Now()
		_, _ = b.create(ctx, e) // its error is the kill
		return time.Since(began)
	}
	whole := create(time.Minute)
	before := len(b.processes())
	var states []os.DirEntry
	for i := 0; i < 25 || (i < 200 && (len(states) < 4 || len(b.processes()) <= before)); i++ {
		create(whole * time.Duration(i%25+rand.IntN(2)) / 20)
		var err error
		if states, err = os.ReadDir(filepath.Join(b.config.Dir, "state")); err != nil {
			t.Fatal(err)
		}
	}
	if len(states) < 4 || len(b.processes()) <= before {
		t.Fatalf("the creates left %d states and processes %v: there is nothing to clean up", len(states), b.processes())
	}
	t.Logf("left are %d states and processes %v", len(states), b.processes())
	b.crash()
	b.open()
	b.noRunnerLeft()
	b.run()
	b.expect(b.begin(hostEnvironment()), "echo hi", "hi")
}
