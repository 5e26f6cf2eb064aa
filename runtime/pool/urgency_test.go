package pool

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// priorityRecorder records the priorities of starts.
type priorityRecorder struct {
	Cluster
	mu       sync.Mutex // guards what follows
	priority map[runtime.RunnerID][]runtime.Priority
}

func (a *priorityRecorder) Start(ctx context.Context, id runtime.RunnerID, env runtime.Environment, priority runtime.Priority) error {
	a.mu.Lock()
	a.priority[id] = append(a.priority[id], priority)
	a.mu.Unlock()
	return a.Cluster.Start(ctx, id, env, priority)
}

// TestWaitingClaimsMakeRefillsUrgent checks that as many refills as there are waiting claims,
// oldest first, become urgent, once. If a claim leaves, the youngest of them becomes a refill
// again.
func TestWaitingClaimsMakeRefillsUrgent(t *testing.T) {
	run(t, 0, func(t *testing.T, b *bed) {
		b.env.PoolSize = maxStarting + 10
		b.env.ID = "slow"
		b.fake.StartDelay(time.Minute)
		cluster := &priorityRecorder{Cluster: b.fake, priority: map[runtime.RunnerID][]runtime.Priority{}}
		slow := b.over(cluster)
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { _ = slow.Run(ctx) })
		settle(time.Second)
		want := func(changed ...string) {
			t.Helper()
			cluster.mu.Lock()
			defer cluster.mu.Unlock()
			for i, id := range slices.Sorted(maps.Keys(cluster.priority)) {
				want := "[50]"
				if i < len(changed) {
					want = changed[i]
				}
				if got := fmt.Sprint(cluster.priority[id]); got != want {
					t.Errorf("runner %d was asked for with %s, want %s", i, got, want)
				}
			}
		}
		for i := range 3 {
			group.Go(func() { _, _ = slow.Claim(ctx, Claim{WaitFor: time.Duration(2*i+2) * time.Second}) })
		}
		settle(time.Second)
		want("[50 80]", "[50 80]", "[50 80]")
		settle(2 * time.Second)
		want("[50 80]", "[50 80]", "[50 80 50]")
		settle(4 * time.Second)
		want("[50 80 50]", "[50 80 50]", "[50 80 50]")
		cancel()
		group.Wait()
		if len(cluster.priority) != maxStarting {
			t.Errorf("%d starts, want %d", len(cluster.priority), maxStarting)
		}
	})
}
