package engine

import (
	"context"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/syncs"
	"github.com/rockpool/rockpool/test/clustertest"
	"github.com/rockpool/rockpool/test/wait"
)

// A sharedCluster is a cluster whose environments others change.
type sharedCluster struct {
	*clustertest.Fake
	syncs.Watchers[runtime.EnvironmentID]
}

func (s *sharedCluster) Watch(ctx context.Context, hint func(runtime.EnvironmentID)) error {
	return s.Fake.Watch(ctx, hint)
}

func (s *sharedCluster) WatchEnvironments(ctx context.Context, hint func()) error {
	return s.Watchers.Watch(ctx, func(runtime.EnvironmentID) { hint() })
}

func TestChangesOfOthersToEnvironmentsAreServed(t *testing.T) {
	b := &bed{fake: clustertest.NewFake(), dir: t.TempDir()}
	cluster := &sharedCluster{Fake: b.fake}
	b.cluster = cluster
	t.Cleanup(func() {
		if err := b.fake.Close(); err != nil {
			t.Error(err)
		}
	})
	b.start(t)
	// Idle runners have so much memory, and the claimed ones stay.
	var held []runtime.RunnerID
	idle := func(what string, memory, revision int) {
		t.Helper()
		cluster.Send("")
		wait.For(t, what, func() bool {
			env, there := b.environmentRegistry.Get("a")
			count := 0
			for _, r := range b.runnerIndex.list(request.Runners{EnvironmentID: "a", States: []runtime.RunnerState{runtime.RunnerIdle}}) {
				if r.Environment.Resources.MemoryMiB != memory {
					return false
				}
				count++
			}
			return there && env.Revision == revision && count == 2
		})
		for _, id := range held {
			if r, there := b.runnerIndex.get(id); !there || r.State != runtime.RunnerClaimed {
				t.Errorf("%s: a claimed runner is %+v", what, r)
			}
		}
		held = append(held, b.claim(t, "a").ID)
	}
	env, err := request.Environment{ID: "a", PoolSize: ptr(2), MemoryMiB: ptr(64)}.New()
	if err != nil {
		t.Fatal(err)
	}
	put := func(memory, revision int) {
		t.Helper()
		env.Resources.MemoryMiB, env.Revision, env.RunnerRevision = memory, revision, revision
		if err := b.fake.PutEnvironment(asServer(t), env); err != nil {
			t.Fatal(err)
		}
	}
	remove := func() {
		t.Helper()
		if err := b.fake.DeleteEnvironment(asServer(t), "a"); err != nil {
			t.Fatal(err)
		}
	}
	put(64, 1)
	idle("one that came is served", 64, 1)
	put(65, 2)
	idle("idle runners of one that was changed are replaced", 65, 2)
	remove()
	put(66, 1)
	idle("those of one that was deleted and made anew, too", 66, 1)
	remove()
	cluster.Send("")
	wait.For(t, "idle runners of one that was deleted are removed", func() bool {
		_, there := b.environmentRegistry.Get("a")
		return !there && len(b.runnerIndex.list(request.Runners{EnvironmentID: "a"})) == len(held)
	})
	for _, id := range held {
		if released, err := b.Runners.Release(asServer(t), id); err != nil || !released {
			t.Errorf("a claimed runner could not be released: %v, %v", released, err)
		}
	}
	put(67, 1)
	held = nil
	idle("it comes back", 67, 1)
}
