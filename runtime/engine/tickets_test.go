package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/ticket"
	"github.com/rockpool/rockpool/test/refusal"
	"github.com/rockpool/rockpool/test/wait"
)

func (b *bed) later(t *testing.T, in request.Claim) ticket.Ticket {
	t.Helper()
	in.EnvironmentID = "a"
	got, err := b.Tickets.Open(by(t, in), in)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// laterWaits is like later, but waits until the claim waits or is answered, which takes longer on a
// busy machine.
func (b *bed) laterWaits(t *testing.T, in request.Claim) ticket.Ticket {
	t.Helper()
	got := b.later(t, in)
	wait.For(t, "the ticket waits, or has its runner", func() bool {
		if got.State != ticket.Waiting || got.Position > 0 {
			return true
		}
		var err error
		if got, err = b.Tickets.Get(asServer(t), got.ID); err != nil {
			t.Fatal(err)
		}
		return false
	})
	return got
}

// laterFails returns a ticket's error, which on a busy machine arrives shortly after ClaimLater returns.
func (b *bed) laterFails(t *testing.T, in request.Claim) error {
	t.Helper()
	got, err := b.Tickets.Open(asServer(t), in)
	if err != nil {
		return err
	}
	wait.For(t, "the ticket fails", func() bool {
		if got, err = b.Tickets.Get(asServer(t), got.ID); err != nil {
			t.Fatal(err)
		}
		return got.State != ticket.Waiting
	})
	return got.Err
}

// held counts the runners that are claimed or being claimed.
func (b *bed) held() (n int) {
	for _, r := range b.runnerIndex.list(request.Runners{EnvironmentID: "a"}) {
		if r.State == runtime.RunnerClaiming || r.State == runtime.RunnerClaimed {
			n++
		}
	}
	return n
}

func TestTicketGetsARunner(t *testing.T) {
	b := newBed(t)
	starts := make(chan struct{})
	b.fake.OnStart(func(runtime.RunnerID) error { <-starts; return nil })
	start := sync.OnceFunc(func() { close(starts) })
	t.Cleanup(start)
	b.environment(t, "a", 0)
	first, second := b.laterWaits(t, request.Claim{}), b.laterWaits(t, request.Claim{WaitFor: ptr(600)})
	if first.State != ticket.Waiting || first.ExpiresAt.Sub(first.CreatedAt) != request.MaxWait || second.ExpiresAt.Sub(second.CreatedAt) != 10*time.Minute {
		t.Errorf("%+v; %+v", first, second)
	}
	watched, err := b.Tickets.Watch(asServer(t), second.ID)
	if err != nil {
		t.Fatal(err)
	}
	for position := 0; position != 2; position = (<-watched).Position {
	}
	if got, err := b.Tickets.Cancel(asServer(t), first.ID); err != nil || got.State != ticket.Cancelled {
		t.Errorf("%+v, %v", got, err)
	}
	for position := 0; position != 1; position = (<-watched).Position {
	}
	start()
	var last ticket.Ticket
	for last = range watched {
	}
	if r, ok := b.runnerIndex.get(last.Runner); last.State != ticket.Claimed || !ok || r.State != runtime.RunnerClaimed {
		t.Errorf("%+v: %+v", last, r)
	}
	if got, err := b.Tickets.Get(asServer(t), second.ID); err != nil || got != last {
		t.Errorf("%+v, %v; want %+v", got, err, last)
	}
	if tenant, err := b.ticketRegistry.Tenant(second.ID); tenant != runtime.DefaultTenant || err != nil {
		t.Errorf("%q, %v", tenant, err)
	}
	refusal.Want(t, b.laterFails(t, request.Claim{EnvironmentID: "none"}), runtime.CodeEnvironmentNotFound, "")
	_, err = b.Tickets.Open(asServer(t), request.Claim{EnvironmentID: "a", WaitFor: ptr(-1)})
	refusal.Want(t, err, runtime.CodeInvalidInput, "waitFor")
	_, err = b.Tickets.Watch(asServer(t), "none")
	refusal.Want(t, err, runtime.CodeTicketNotFound, "")
	_, err = b.Tickets.Get(asServer(t), "none")
	refusal.Want(t, err, runtime.CodeTicketNotFound, "")
}

// TestTicketsWithKeys checks that a key means the same for both ways to claim, and that a ticket
// never releases the other's runner.
func TestTicketsWithKeys(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 2)
	wait.For(t, "the pool fills", func() bool { s, _ := b.Environments.PoolStatus(runtime.Environment{ID: "a"}); return s.Idle == 2 })
	r, err := b.Runners.Claim(asServer(t), request.Claim{EnvironmentID: "a", Key: "k", InactivityTimeout: ptr(0)})
	if err != nil {
		t.Fatal(err)
	}
	got := b.laterWaits(t, request.Claim{Key: "k", InactivityTimeout: ptr(0)})
	if again := b.later(t, request.Claim{Key: "k", InactivityTimeout: ptr(0)}); got.State != ticket.Claimed || got.Runner != r.ID || again != got {
		t.Errorf("%+v, then %+v; want %s", got, again, r.ID)
	}
	refusal.Want(t, b.laterFails(t, request.Claim{EnvironmentID: "a", Key: "k", InactivityTimeout: ptr(60)}), runtime.CodeConflict, "")
	if ok, err := b.Runners.Release(asServer(t), r.ID); !ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
}

// TestCancelledTicketsLeaveNoRunner cancels at every stage of the claim.
func TestCancelledTicketsLeaveNoRunner(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 2)
	for i := range 200 {
		in := request.Claim{InactivityTimeout: ptr(0)}
		if i%2 > 0 {
			in.Key = fmt.Sprint(i)
		}
		got := b.later(t, in)
		for range i % 7 * 1000 { // sooner or later
			_, _ = b.ticketRegistry.Tenant(got.ID)
		}
		got, err := b.Tickets.Cancel(asServer(t), got.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got.State == ticket.Claimed { // it was when it was opened: it is ours
			if _, err := b.Runners.Release(asServer(t), got.Runner); err != nil {
				t.Fatal(err)
			}
		}
	}
	wait.For(t, "nothing is held", func() bool {
		s, _ := b.Environments.PoolStatus(runtime.Environment{ID: "a"})
		return s.Waiting == 0 && b.held() == 0
	})
}

// deaf is an ended context that nothing notices in time.
type deaf struct{ context.Context }

func (deaf) Done() <-chan struct{} { return nil }

// TestRunnerClaimedAfterItsCallerGaveUpIsReleased uses claims with a key that get their runner just
// when the caller gives up, before or after it has returned.
func TestRunnerClaimedAfterItsCallerGaveUpIsReleased(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	unwanted, cancel := context.WithCancelCause(asServer(t))
	cancel(pool.ErrUnwanted)
	for i := range 40 {
		claiming := asServer(t) // while the caller is gone
		if i%2 > 0 {
			claiming = deaf{unwanted}
		}
		spawn := func(f func(context.Context)) error { f(claiming); return nil }
		claim := pool.Claim{Claim: runtime.Claim{Key: fmt.Sprint(i)}, WaitFor: wait.Limit}
		r, first, err := b.claimBy(unwanted, spawn, "a", claim)
		switch {
		case err == nil && first && i%2 == 0: // the caller isn't gone yet
			if _, err := b.Runners.Release(asServer(t), r.ID); err != nil {
				t.Fatal(err)
			}
		case !errors.Is(err, pool.ErrUnwanted):
			t.Errorf("%+v, %v, %v", r, first, err)
		}
	}
	wait.For(t, "nothing is held", func() bool { return b.held() == 0 })
}

// TestUnseenRunnersOfTicketsAreReleased also uses a claim with a key.
func TestUnseenRunnersOfTicketsAreReleased(t *testing.T) {
	b := newBed(t)
	b.stop()
	b.config.Grace = 300 * time.Millisecond
	b.start(t)
	starts := make(chan struct{})
	b.fake.OnStart(func(runtime.RunnerID) error { <-starts; return nil })
	b.environment(t, "a", 0)
	for _, key := range []string{"", "k"} {
		got := b.later(t, request.Claim{Key: key, InactivityTimeout: ptr(0)})
		if got.State != ticket.Waiting {
			t.Errorf("%+v", got)
		}
	}
	close(starts)
	wait.For(t, "the pool is empty", func() bool { return len(b.runnerIndex.list(request.Runners{})) == 0 })
}
