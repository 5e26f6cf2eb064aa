package nomad

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/nomad/state"
	"github.com/rockpool/rockpool/runtime"
)

// The lock of a server that can't renew it ends in Nomad after its TTL, and another server begins.
// Before that time this one must stop.
func TestNothingIsDoneAfterTheLockMayHaveExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.stop()
		w.config.LockTTL = 10 * time.Second
		w.run()
		w.idle()
		w.locked(func() { w.leaderless = true })
		worked := time.Now()
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if w.cluster.ready(t.Context()) == nil {
				worked = time.Now()
			}
		}
		var held time.Time
		w.locked(func() { held = w.lockedAt })
		if after := worked.Sub(held); after > w.config.LockTTL || after < w.config.LockTTL/2 {
			t.Errorf("it worked until %s after its last renewal, of a lock for %s", after, w.config.LockTTL)
		}
		if err := w.cluster.ready(t.Context()); !errors.Is(err, state.ErrLost) {
			t.Errorf("afterwards it says %v, want %v", err, state.ErrLost)
		}
	})
}

// Calls in progress end when the lock is lost.
func TestCallsEndWithTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.stop()
		w.config.LockTTL, w.config.Connection.Patience = 10*time.Second, time.Minute
		w.run()
		id := w.idle()
		w.locked(func() { w.leaderless = true })
		began := time.Now()
		err := w.cluster.Mark(t.Context(), id, runtime.Claim{Epoch: 1, ClaimedAt: began})
		if took := time.Since(began); err == nil || took > w.config.LockTTL {
			t.Errorf("a claim ended after %s: %v", took, err)
		}
	})
}

// A list may report that a runner is ready, and a claim may take it, before the write that makes it
// ready is answered. That answer must not change the runner.
func TestListMayFindARunnerReadyFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		id := w.idle()
		if err := w.cluster.Mark(t.Context(), id, runtime.Claim{Epoch: 1, ClaimedAt: time.Now()}); err != nil {
			t.Fatal(err)
		}
		c := w.cluster
		c.runners.mu.Lock()
		e := c.runners.entries[id]
		allocation, variable := e.allocation, e.variable
		c.runners.mu.Unlock()
		if err := c.makeReady(t.Context(), e, allocation); err != nil {
			t.Errorf("it would be tried for ever: %v", err)
		}
		c.runners.mu.Lock()
		defer c.runners.mu.Unlock()
		if e.variable != variable || e.runner.State != runtime.RunnerClaimed {
			t.Errorf("the runner is %s at %d, not CLAIMED at %d", e.runner.State, e.variable, variable)
		}
	})
}

// A Nomad that accepts connections and doesn't answer delays nobody beyond the caller's context.
func TestCheckEndsWithItsContext(t *testing.T) {
	for name, template := range map[string]string{"built in": "", "own": `job "a" {}`} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := New(t.Context(), defaults(Config{
					Jobs: job.Config{Driver: job.RawExec, Agent: job.Agent{Path: "/agent"}, Template: []byte(template)},
					Connection: connection.Config{Dial: func(context.Context, string, string) (net.Conn, error) {
						ours, _ := net.Pipe()
						return ours, nil
					}},
				}))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				began := time.Now()
				err = c.Check(ctx)
				if _, parseErr := c.environments.Check(ctx); template != "" && parseErr == nil {
					t.Error("it parsed a template")
				}
				if took := time.Since(began); err == nil || took > 4*time.Second {
					t.Errorf("it took %s: %v", took, err)
				}
			})
		})
	}
}
