package engine

import (
	"context"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

// TestProgramsOfRemovedRunnersAreCharged: who removes a runner while its programs run, or starves its agent until the
// runner is removed, is charged what the host counted since each program's start.
func TestProgramsOfRemovedRunnersAreCharged(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	b.fake.Count(r.ID, runtime.Evidence{CPU: time.Second}) // by earlier programs
	x, err := b.Start(t.Context(), StartInput{RunnerID: r.ID, Command: []string{"sleep", "3600"}})
	if err != nil {
		t.Fatal(err)
	}
	b.fake.Count(r.ID, runtime.Evidence{CPU: 8 * time.Second})
	wait.For(t, "the server has taken in what was counted", func() bool { return b.fake.Counted(r.ID) > 1 })
	if _, err := b.Release(context.Background(), r.ID); err != nil {
		t.Fatal(err)
	}
	ended := b.await(t, x.ID)
	if ended.End.Outcome != runtime.OutcomeRunnerGone || ended.Usage.User != 7*time.Second || ended.Usage.Wall <= 0 {
		t.Errorf("%+v, %+v", ended.End, ended.Usage)
	}
}
