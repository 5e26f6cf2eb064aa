package pool

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// A tight cluster has room for a limited number of runners, and reports why the others wait.
type tight struct {
	Cluster
	waitsFor atomic.Pointer[string]
}

func (c *tight) Runners(ctx context.Context, env runtime.EnvironmentID) ([]runtime.Runner, error) {
	all, err := c.Cluster.Runners(ctx, env)
	for i := range all {
		if all[i].State == runtime.RunnerStarting {
			all[i].Message = *c.waitsFor.Load()
		}
	}
	return all, err
}

// TestShortPoolReportsItsReason uses a pool of which one half is idle and the other half never
// becomes ready. A reason for waiting is reported after shortAfter, as long as it lasts. A start
// without a reason is reported after silentAfter.
func TestShortPoolReportsItsReason(t *testing.T) {
	run(t, 0, func(t *testing.T, b *bed) {
		b.env.ID, b.env.PoolSize = "short", 4
		var starts atomic.Int32
		room := make(chan struct{})
		b.fake.OnStart(func(runtime.RunnerID) error {
			if starts.Add(1) > 2 {
				<-room
			}
			return nil
		})
		cluster := &tight{Cluster: b.fake}
		says := func(text string) { cluster.waitsFor.Store(&text) }
		says("")
		short := b.over(cluster)
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { _ = short.Run(ctx) })
		defer group.Wait()
		defer cancel()
		want := func(when string, idle int, reason string) {
			t.Helper()
			if s := short.Status(); s.Idle != idle || s.Starting != 4-idle || s.Reason != reason {
				t.Errorf("%s: %+v, want %d idle and the reason %q", when, s, idle, reason)
			}
			if alert, _ := short.WatchAlert(); alert.State != "" {
				t.Errorf("%s: %+v", when, alert)
			}
		}
		hint := func() { short.Hint(); settle(time.Millisecond) }
		settle(time.Second)
		hint()
		settle(silentAfter - 2*time.Second)
		want("while they start", 2, "")
		settle(time.Second)
		want("when they have been starting for long", 2, "2 runners have been starting for over a minute, and the cluster gives no reason")
		says("memory exhausted")
		hint()
		settle(shortAfter - time.Second)
		want("while they wait a little", 2, "")
		says("disk exhausted")
		hint()
		want("while they wait a little, for something else", 2, "")
		settle(time.Second)
		want("when they have waited for long", 2, "disk exhausted")
		says("")
		hint()
		want("when they wait for nothing", 2, "")
		says("memory exhausted")
		hint()
		settle(shortAfter - time.Second)
		want("when they wait again", 2, "")
		settle(time.Second)
		want("when they have waited again", 2, "memory exhausted")
		close(room)
		settle(time.Millisecond)
		hint()
		want("when all are idle", 4, "")
	})
}

// TestBusyPoolReportsItsReason uses a pool with constant churn, in which no single start waits for long.
func TestBusyPoolReportsItsReason(t *testing.T) {
	run(t, 0, func(t *testing.T, b *bed) {
		b.env.ID, b.env.PoolSize = "busy", 5
		b.fake.StartDelay(0)
		var starts atomic.Int32
		var mu sync.Mutex
		var waiting []chan struct{} // starts, the oldest first
		b.fake.OnStart(func(runtime.RunnerID) error {
			if starts.Add(1) <= 2 {
				return nil
			}
			room := make(chan struct{})
			mu.Lock()
			waiting = append(waiting, room)
			mu.Unlock()
			<-room
			return nil
		})
		makeRoom := func() {
			mu.Lock()
			defer mu.Unlock()
			close(waiting[0])
			waiting = waiting[1:]
		}
		cluster := &tight{Cluster: b.fake}
		text := "memory exhausted"
		cluster.waitsFor.Store(&text)
		busy := b.over(cluster)
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { _ = busy.Run(ctx) })
		group.Go(func() { _ = b.fake.Watch(ctx, func(runtime.EnvironmentID) { busy.Hint() }) })
		defer group.Wait()
		defer func() {
			cancel()
			for range 3 {
				makeRoom()
			}
		}()
		settle(time.Millisecond)
		for range 2 * int(shortAfter/time.Second) {
			r, err := busy.Claim(t.Context(), Claim{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := busy.Release(t.Context(), r.ID); err != nil {
				t.Fatal(err)
			}
			settle(time.Millisecond)
			makeRoom()
			settle(time.Second)
		}
		if s := busy.Status(); s.Idle != 2 || s.Starting != 3 || s.Reason != text {
			t.Errorf("%+v", s)
		}
	})
}
