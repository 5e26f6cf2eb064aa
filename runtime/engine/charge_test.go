package engine

import (
	"context"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/test/wait"
)

// TestRemovedRunnersAreChargedForTheirPrograms checks callers that remove a runner while its
// programs run, or starve its agent until the runner is removed. They are charged, once, for what
// the host counted since the start.
func TestRemovedRunnersAreChargedForTheirPrograms(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	b.fake.Count(r.ID, runtime.Evidence{CPU: time.Second}) // by earlier programs
	var both []runtime.ExecutionID
	for range 2 {
		x, err := b.Executions.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"sleep", "3600"}})
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, x.ID)
	}
	b.fake.Count(r.ID, runtime.Evidence{CPU: 8 * time.Second})
	wait.For(t, "the server has taken in what was counted", func() bool { return b.fake.Counted(r.ID) > 4 })
	if _, err := b.Runners.Release(context.WithoutCancel(asServer(t)), r.ID); err != nil {
		t.Fatal(err)
	}
	charged := time.Duration(0)
	for _, id := range both {
		ended := b.await(t, id)
		if ended.End.Outcome != runtime.OutcomeRunnerGone || ended.Usage.Wall <= 0 {
			t.Errorf("%+v, %+v", ended.End, ended.Usage)
		}
		charged += ended.Usage.User
	}
	if charged != 7*time.Second {
		t.Errorf("together they are charged %v", charged)
	}
}
