package engine

import (
	"context"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

// TestRemovedRunnersAreChargedForTheirPrograms: a caller that removes a runner while its programs run, or
// starves its agent until the runner is removed, is charged what the host counted since their
// start, once.
func TestRemovedRunnersAreChargedForTheirPrograms(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	b.fake.Count(r.ID, runtime.Evidence{CPU: time.Second}) // by earlier programs
	var both []runtime.ExecutionID
	for range 2 {
		x, err := b.Start(t.Context(), StartInput{RunnerID: r.ID, Command: []string{"sleep", "3600"}})
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, x.ID)
	}
	b.fake.Count(r.ID, runtime.Evidence{CPU: 8 * time.Second})
	wait.For(t, "the server has taken in what was counted", func() bool { return b.fake.Counted(r.ID) > 4 })
	if _, err := b.Release(context.Background(), r.ID); err != nil {
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
