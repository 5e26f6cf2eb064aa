package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// hold keeps runners from starting until the returned channel is closed; each value received from
// it admits one.
func (b *bed) hold() chan struct{} {
	gate := make(chan struct{})
	b.fake.OnStart(func(runtime.RunnerID) error { <-gate; return nil })
	return gate
}

// callCounter counts calls of a claim's OnQueue.
type callCounter struct{ atomic.Int64 }

func (c *callCounter) hook() error {
	c.Add(1)
	return nil
}

// TestClaimServedImmediatelyNeverWaits also covers a claim without WaitFor.
func TestClaimServedImmediatelyNeverWaits(t *testing.T) {
	run(t, 1, func(t *testing.T, b *bed) {
		b.want(t, 1, 0)
		gate := b.hold()
		defer close(gate)
		var c callCounter
		waiting := NewQueued()
		b.claim(t, Claim{OnQueue: c.hook, Queued: waiting, WaitFor: time.Minute})
		if _, err := b.Claim(t.Context(), Claim{OnQueue: c.hook}); runtime.CodeOf(err) != runtime.CodeNoRunnerAvailable {
			t.Errorf("without waiting: got %v, want NO_RUNNER_AVAILABLE", err)
		}
		select {
		case <-waiting.Began():
			t.Error("it began to wait")
		default:
		}
		if c.Load() != 0 || b.QueuePosition(t.Context(), waiting) != (QueuePosition{}) {
			t.Errorf("%d; %+v", c.Load(), b.QueuePosition(t.Context(), waiting))
		}
	})
}

// TestClaimsStopWaiting checks that a claim that stops waiting, for any reason, has no position, and
// that OnQueue was called once.
func TestClaimsStopWaiting(t *testing.T) {
	for name, stop := range map[string]func(t *testing.T, b *bed, gate chan struct{}, leave func()){
		"served":    func(_ *testing.T, _ *bed, gate chan struct{}, _ func()) { gate <- struct{}{} },
		"expired":   func(*testing.T, *bed, chan struct{}, func()) { settle(time.Hour) },
		"abandoned": func(_ *testing.T, _ *bed, _ chan struct{}, leave func()) { leave() },
		"deleted": func(t *testing.T, b *bed, gate chan struct{}, _ func()) {
			if err := b.Delete(t.Context(), true); err != nil {
				t.Error(err)
			}
		},
		"given away": func(t *testing.T, b *bed, _ chan struct{}, _ func()) {
			env := b.env
			env.Tenant, env.Shared, env.Revision = "other", false, env.Revision+1
			if err := b.SetEnvironment(t.Context(), env); err != nil {
				t.Error(err)
			}
			if _, err := b.Claim(t.Context(), Claim{WaitFor: time.Minute}); runtime.CodeOf(err) != runtime.CodeEnvironmentNotFound {
				t.Errorf("a later one: got %v, want ENVIRONMENT_NOT_FOUND", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, 0, func(t *testing.T, b *bed) {
				gate := b.hold()
				defer close(gate)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				var c callCounter
				waiting := NewQueued()
				answered := make(chan struct{})
				go func() {
					defer close(answered)
					_, _ = b.Claim(ctx, Claim{OnQueue: c.hook, Queued: waiting, WaitFor: time.Minute})
				}()
				settle(time.Second)
				<-waiting.Began()
				if c.Load() != 1 || b.QueuePosition(t.Context(), waiting).Position != 1 {
					t.Fatalf("while it waits: %d; %+v", c.Load(), b.QueuePosition(t.Context(), waiting))
				}
				stop(t, b, gate, leave)
				settle(time.Second)
				<-answered
				if c.Load() != 1 || b.Status().Waiting != 0 || b.QueuePosition(t.Context(), waiting) != (QueuePosition{}) {
					t.Errorf("%d; %d wait; %+v", c.Load(), b.Status().Waiting, b.QueuePosition(t.Context(), waiting))
				}
			})
		})
	}
}

var errQuota = runtime.Errorf(runtime.CodeQuotaExceeded, "enough of yours wait")

// TestWaitsRefuses checks that an exceeded quota answers only the claim that would wait.
func TestWaitsRefuses(t *testing.T) {
	run(t, 0, func(t *testing.T, b *bed) {
		gate := b.hold()
		defer close(gate)
		waiting := NewQueued()
		_, err := b.Claim(t.Context(), Claim{WaitFor: time.Minute, Queued: waiting, OnQueue: func() error { return errQuota }})
		if !errors.Is(err, errQuota) || b.Status().Waiting != 0 || waiting.queued.Load() {
			t.Errorf("%v; %d wait", err, b.Status().Waiting)
		}
	})
}

// TestPositions checks positions by weighted turns, and the wait estimated from the pace.
func TestPositions(t *testing.T) {
	run(t, 0, func(t *testing.T, b *bed) {
		gate := b.hold()
		defer close(gate)
		served := make(chan string, 10)
		all := map[string]*Queued{}
		for i, c := range []struct {
			tenant runtime.TenantID
			weight int
			caller string
		}{{"a", 1, "x"}, {"a", 1, "x"}, {"a", 1, "y"}, {"b", 2, "x"}, {"b", 2, "x"}, {"b", 2, "x"}} {
			name := fmt.Sprint(c.tenant, i)
			all[name] = NewQueued()
			go func() {
				claim := Claim{Claim: runtime.Claim{Tenant: c.tenant}, Weight: c.weight, Caller: c.caller, WaitFor: time.Hour, Queued: all[name]}
				if _, err := b.Claim(t.Context(), claim); err == nil {
					served <- name
				}
			}()
			settle(time.Millisecond)
		}
		positions := func() (order []string, turn time.Duration) {
			order = make([]string, len(all))
			for name, w := range all {
				position := b.QueuePosition(t.Context(), w)
				if position.Position == 0 {
					t.Fatalf("%s has no position", name)
				}
				order[position.Position-1] = name
				turn = position.EstimatedWait / time.Duration(position.Position)
			}
			return order, turn
		}
		first, turn := positions()
		if want := []string{"a0", "b3", "b4", "a2", "b5", "a1"}; !slices.Equal(first, want) || turn != 0 {
			t.Errorf("the order is %q, want %q; a turn takes %v", first, want, turn)
		}
		for len(all) > 2 {
			settle(10 * time.Second)
			gate <- struct{}{}
			settle(time.Second)
			name := <-served
			delete(all, name)
			left, turn := positions()
			if name != first[0] || !slices.Equal(left, first[1:]) || turn < 9*time.Second || turn > 12*time.Second {
				t.Errorf("%s was served, of %q; now %q, a turn takes %v", name, first, left, turn)
			}
			first = left
		}
		settle(5 * time.Minute) // no turn ends: the estimate grows
		if _, turn := positions(); turn < time.Minute || turn > 2*time.Minute {
			t.Errorf("after a long time a turn takes %v", turn)
		}
	})
}

// TestPositionsAreShared checks that recently computed positions are reused.
func TestPositionsAreShared(t *testing.T) {
	run(t, 0, func(t *testing.T, b *bed) {
		gate := b.hold()
		defer close(gate)
		claim := func() *Queued {
			w := NewQueued()
			go func() { _, _ = b.Claim(t.Context(), Claim{WaitFor: time.Minute, Queued: w}) }()
			<-w.Began()
			return w
		}
		first := claim()
		if got := b.QueuePosition(t.Context(), first).Position; got != 1 {
			t.Errorf("position %d, want 1", got)
		}
		second := claim()
		if got := b.QueuePosition(t.Context(), second).Position; got != 0 {
			t.Errorf("position %d at the same moment, want 0", got)
		}
		settle(2 * positionsFor)
		if got := b.QueuePosition(t.Context(), second).Position; got != 2 {
			t.Errorf("position %d, want 2", got)
		}
	})
}

func TestPace(t *testing.T) {
	var p pace
	now := time.Unix(1000, 0)
	p.wait(now, 1)
	if got := p.turn(now.Add(time.Hour)); got != 0 {
		t.Errorf("without a basis: got %v, want 0", got)
	}
	for range 5 {
		now = now.Add(4 * time.Second)
		p.served(now)
	}
	p.wait(now, 0)
	if got := p.turn(now.Add(time.Hour)); got != 4*time.Second { // nobody waited: the time doesn't count
		t.Errorf("%v", got)
	}
	now = now.Add(time.Hour)
	p.wait(now, 3)
	for range 100 {
		now = now.Add(time.Second)
		p.served(now)
	}
	if got := p.turn(now); got < time.Second || got > 1100*time.Millisecond {
		t.Errorf("after it became faster: %v", got)
	}
}

// TestUnwantedRunnerIsReleased also covers a claim with a key.
func TestUnwantedRunnerIsReleased(t *testing.T) {
	for cause, claimed := range map[error]int{ErrUnwanted: 0, errGivenUp: 1} {
		run(t, 1, func(t *testing.T, b *bed) {
			b.want(t, 1, 0)
			marking := make(chan struct{})
			b.fake.OnMark(func(runtime.RunnerID, runtime.Claim) error { <-marking; return nil })
			ctx, leave := context.WithCancelCause(t.Context())
			answered := make(chan error, 1)
			go func() {
				_, err := b.Claim(ctx, Claim{Claim: runtime.Claim{Key: "k"}})
				answered <- err
			}()
			settle(time.Second)
			leave(cause)
			if err := <-answered; !errors.Is(err, cause) {
				t.Errorf("got %v, want %v", err, cause)
			}
			settle(time.Second)
			close(marking)
			b.want(t, 1, claimed)
		})
	}
}

var errGivenUp = errors.New("given up")
