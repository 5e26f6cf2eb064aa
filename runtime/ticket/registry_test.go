package ticket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/test/clustertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bed is a Registry over a pool without idle runners, in fake time. One runner starts for each value
// sent to starts.
type bed struct {
	*Registry
	pool   *pool.Pool
	starts chan struct{}
	stop   func() // the jobs of the Registry; it returns when they have ended

	mu       sync.Mutex
	released []runtime.RunnerID
}

func run(t *testing.T, options Options, test func(t *testing.T, b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		fake := clustertest.NewFake()
		b := &bed{starts: make(chan struct{})}
		fake.OnStart(func(runtime.RunnerID) error { <-b.starts; return nil })
		b.pool = pool.New(runtime.Environment{ID: "e", Shared: true, Revision: 1, RunnerRevision: 1}, nil, pool.Options{
			Cluster: fake, Logger: zap.NewNop(), Observe: func(runtime.Runner) {}, Ending: func(context.Context, runtime.Runner) error { return nil },
		})
		running, end := context.WithCancel(t.Context())
		ctx, stop := context.WithCancel(running)
		var pools, jobs sync.WaitGroup
		pools.Go(func() { _ = b.pool.Run(running) })
		pools.Go(func() { _ = fake.Watch(running, func(runtime.EnvironmentID) { b.pool.Hint() }) })
		b.stop = func() { stop(); jobs.Wait() }
		options.Spawn = func(f func(context.Context)) error { jobs.Go(func() { f(ctx) }); return nil }
		options.Release = func(ctx context.Context, id runtime.RunnerID) {
			b.mu.Lock()
			b.released = append(b.released, id)
			b.mu.Unlock()
			if ok, err := b.pool.Release(ctx, id); !ok || err != nil {
				t.Errorf("release: %v, %v", ok, err)
			}
		}
		b.Registry = New(options)
		test(t, b)
		b.stop()
		end()
		close(b.starts)
		pools.Wait()
		if err := fake.Close(); err != nil {
			t.Error(err)
		}
	})
}

func (b *bed) order(tenant runtime.TenantID, waitFor time.Duration) Order {
	return Order{
		Tenant: tenant, EnvironmentID: "e", WaitFor: waitFor,
		Claim: func(ctx context.Context, w *pool.Queued) (runtime.RunnerID, bool, error) {
			r, err := b.pool.Claim(ctx, pool.Claim{Claim: runtime.Claim{Tenant: tenant}, WaitFor: waitFor, Queued: w})
			return r.ID, true, err
		},
		Position: b.pool.QueuePosition,
	}
}

func (b *bed) open(t *testing.T, order Order) Ticket {
	t.Helper()
	opened, err := b.Open(t.Context(), order)
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

// is reads a ticket, and fails the test unless it has this state.
func (b *bed) is(t *testing.T, id runtime.TicketID, state State) Ticket {
	t.Helper()
	settle(time.Millisecond)
	got, err := b.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if got.State != state {
		t.Errorf("%+v, want %s", got, state)
	}
	return got
}

func (b *bed) claimed(t *testing.T, want int) {
	t.Helper()
	settle(time.Second)
	if got := b.pool.Status(); got.Claimed != want {
		t.Errorf("%d are claimed, want %d", got.Claimed, want)
	}
}

func settle(d time.Duration) {
	time.Sleep(d) // fake time
	synctest.Wait()
}

// TestTicketGetsItsRunner polls a ticket until it gets its runner.
func TestTicketGetsItsRunner(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *bed) {
		first, second := b.open(t, b.order("t", time.Hour)), b.open(t, b.order("t", time.Hour))
		if first.State != Waiting || first.Position != 1 || first.Tenant != "t" || first.EstimatedWait != 0 ||
			first.ExpiresAt.Sub(first.CreatedAt) != time.Hour || !first.EndedAt.IsZero() || first.Err != nil {
			t.Errorf("%+v", first)
		}
		for range 4 {
			settle(DefaultGrace - time.Second)
			b.is(t, first.ID, Waiting)
			if got := b.is(t, second.ID, Waiting); got.Position != 2 {
				t.Errorf("%+v", got)
			}
		}
		b.starts <- struct{}{}
		got := b.is(t, first.ID, Claimed)
		if got.Runner == "" || got.Position != 0 || got.EndedAt.IsZero() {
			t.Errorf("%+v", got)
		}
		if got := b.is(t, second.ID, Waiting); got.Position != 1 || got.EstimatedWait < time.Minute {
			t.Errorf("%+v", got)
		}
		settle(time.Minute) // it was seen: its runner is the holder's to release
		b.is(t, first.ID, Claimed)
		b.claimed(t, 1)
		if tenant, err := b.Tenant(first.ID); tenant != "t" || err != nil {
			t.Errorf("%q, %v", tenant, err)
		}
		settle(keep)
		for _, err := range []error{
			func() error { _, err := b.Get(t.Context(), first.ID); return err }(),
			func() error { _, err := b.Tenant(first.ID); return err }(),
			func() error { _, err := b.Cancel(first.ID); return err }(),
			b.Watch(t.Context(), first.ID, nil),
		} {
			if runtime.CodeOf(err) != runtime.CodeTicketNotFound {
				t.Errorf("after a while: got %v, want TICKET_NOT_FOUND", err)
			}
		}
	})
}

func TestUnpolledTicketIsCancelled(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, b *bed){
		"while it waits": func(t *testing.T, b *bed) {
			id := b.open(t, b.order("t", time.Hour)).ID
			settle(DefaultGrace - time.Second)
			if _, err := b.Tenant(id); err != nil { // another's request is no look
				t.Error(err)
			}
			settle(2 * time.Second)
			if got := b.is(t, id, Cancelled); got.Err == nil || b.pool.Status().Waiting != 0 {
				t.Errorf("%+v; %d wait", got, b.pool.Status().Waiting)
			}
		},
		"once it is claimed": func(t *testing.T, b *bed) {
			id := b.open(t, b.order("t", time.Hour)).ID
			settle(DefaultGrace - 5*time.Second)
			b.starts <- struct{}{}
			settle(DefaultGrace - 2*time.Second)
			b.claimed(t, 1)
			settle(2 * time.Second)
			b.claimed(t, 0)
			if got := b.is(t, id, Cancelled); got.Runner != "" || len(b.released) != 1 {
				t.Errorf("%+v; released: %q", got, b.released)
			}
		},
		"after watching": func(t *testing.T, b *bed) {
			id := b.open(t, b.order("t", time.Hour)).ID
			ctx, leave := context.WithCancel(t.Context())
			left := make(chan error, 1)
			go func() { left <- b.Watch(ctx, id, make(chan Ticket)) }() // it never reads
			settle(5 * time.Minute)
			if b.pool.Status().Waiting != 1 {
				t.Error("a watcher is no holder")
			}
			leave()
			if err := <-left; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want %v", err, context.Canceled)
			}
			settle(DefaultGrace - time.Second)
			if b.pool.Status().Waiting != 1 {
				t.Error("its grace is too short")
			}
			settle(2 * time.Second)
			b.is(t, id, Cancelled)
		},
		"of another's runner": func(t *testing.T, b *bed) { // that another request with the key has
			order := b.order("t", time.Hour)
			claim := order.Claim
			order.Claim = func(ctx context.Context, w *pool.Queued) (runtime.RunnerID, bool, error) {
				id, _, err := claim(ctx, w)
				return id, false, err
			}
			id := b.open(t, order).ID
			b.starts <- struct{}{}
			settle(2 * DefaultGrace)
			b.is(t, id, Cancelled)
			b.claimed(t, 1)
			if len(b.released) > 0 {
				t.Error("it was released")
			}
		},
	} {
		t.Run(name, func(t *testing.T) { run(t, Options{}, test) })
	}
}

func TestCancel(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *bed) {
		waits, unseen, seen := b.open(t, b.order("t", time.Hour)), b.open(t, b.order("t", time.Hour)), b.open(t, b.order("t", time.Hour))
		cancel := func(id runtime.TicketID, state State) {
			t.Helper()
			if got, err := b.Cancel(id); err != nil || got.State != state {
				t.Errorf("%+v, %v; want %s", got, err, state)
			}
		}
		cancel(waits.ID, Cancelled)
		cancel(waits.ID, Cancelled)
		settle(time.Second)
		if got := b.pool.Status().Waiting; got != 2 {
			t.Errorf("%d wait, want 2", got)
		}
		for range 3 { // one is for the one that was cancelled
			select {
			case b.starts <- struct{}{}:
			case <-time.After(time.Second):
			}
		}
		b.is(t, seen.ID, Claimed)
		b.claimed(t, 2)
		cancel(unseen.ID, Cancelled)
		cancel(seen.ID, Claimed)
		b.claimed(t, 1)
	})
}

// TestClaimsThatFail checks that a ticket ends like its claim, and that a claim that fails before
// it waits makes none.
func TestClaimsThatFail(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *bed) {
		if _, err := b.Open(t.Context(), b.order("t", 0)); runtime.CodeOf(err) != runtime.CodeNoRunnerAvailable || len(b.byID) != 0 {
			t.Errorf("%v; %d are known", err, len(b.byID))
		}
		expires := b.open(t, b.order("t", time.Second))
		settle(2 * time.Second)
		if got := b.is(t, expires.ID, Expired); runtime.CodeOf(got.Err) != runtime.CodeNoRunnerAvailable {
			t.Errorf("%+v", got)
		}
		fails := b.open(t, b.order("t", time.Hour))
		other := b.order("t", time.Hour)
		other.Claim = func(ctx context.Context, _ *pool.Queued) (runtime.RunnerID, bool, error) {
			<-ctx.Done()
			return "", false, context.Cause(ctx)
		}
		began := time.Now()
		stops := b.open(t, other)
		if stops.State != Waiting || stops.Position != 0 || time.Since(began) != prompt {
			t.Errorf("%+v after %v", stops, time.Since(began))
		}
		if err := b.pool.Delete(t.Context(), false); err != nil {
			t.Error(err)
		}
		if got := b.is(t, fails.ID, Failed); runtime.CodeOf(got.Err) != runtime.CodeEnvironmentNotFound {
			t.Errorf("%+v", got)
		}
		b.stop()
		if got := b.is(t, stops.ID, Failed); runtime.CodeOf(got.Err) != runtime.CodeClusterUnavailable {
			t.Errorf("%+v", got)
		}
	})
}

// TestOpenWithACancelledContext checks that a caller that disconnects before it gets the id leaves
// no claim, unless it has a key.
func TestOpenWithACancelledContext(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *bed) {
		order := b.order("t", time.Hour)
		order.Claim = func(ctx context.Context, _ *pool.Queued) (runtime.RunnerID, bool, error) {
			<-ctx.Done()
			return "", false, context.Cause(ctx)
		}
		for key, state := range map[string]State{"": Cancelled, "k": Waiting} {
			order.Key = key
			ctx, leave := context.WithTimeoutCause(t.Context(), prompt/2, errLeft)
			if _, err := b.Open(ctx, order); !errors.Is(err, errLeft) {
				t.Errorf("got %v, want %v", err, errLeft)
			}
			leave()
			for id, e := range b.byID {
				if e.order.Key == key {
					b.is(t, id, state)
				}
			}
		}
	})
}

var errLeft = errors.New("the caller left")

// TestTicketsAreBounded checks that a tenant gets its share of tickets. Waiting tickets are never
// dropped for others; the oldest ended one of the same tenant is.
func TestTicketsAreBounded(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *bed) {
		b.shares.Limit = 6
		ended := b.open(t, b.order("u", time.Hour))
		if _, err := b.Cancel(ended.ID); err != nil {
			t.Error(err)
		}
		settle(time.Second)
		var all []Ticket
		for range 3 {
			all = append(all, b.open(t, b.order("t", time.Hour)))
		}
		var e *runtime.Error
		if _, err := b.Open(t.Context(), b.order("t", time.Hour)); !errors.As(err, &e) || e.Code != runtime.CodeQuotaExceeded || *e.Exceeded != (runtime.Exceeded{Quota: "tickets", Limit: 3, Used: 3}) {
			t.Error(err)
		}
		for _, i := range []int{1, 0} {
			if _, err := b.Cancel(all[i].ID); err != nil {
				t.Error(err)
			}
			settle(time.Second)
		}
		b.open(t, b.order("t", time.Hour))
		if _, err := b.Get(t.Context(), all[1].ID); runtime.CodeOf(err) != runtime.CodeTicketNotFound || len(b.byID) != 4 {
			t.Errorf("%v; %d are known", err, len(b.byID))
		}
		b.is(t, ended.ID, Cancelled)
		b.is(t, all[0].ID, Cancelled)
		b.is(t, all[2].ID, Waiting)
		if got := b.open(t, b.order("v", time.Hour)); got.State != Waiting {
			t.Errorf("another tenant's: %+v", got)
		}
		settle(DefaultGrace + keep + time.Second)
		b.open(t, b.order("t", time.Hour))
		if len(b.byID) != 1 || len(b.ended) != 0 {
			t.Errorf("%d are known, %d of them have ended", len(b.byID), len(b.ended))
		}
		for range 2 {
			b.open(t, b.order("t", time.Hour)) // as many as at first: nothing was lost
		}
	})
}

// TestWatch checks that a watcher gets each position, at most four per second, and only the latest.
func TestWatch(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *bed) {
		var before []Ticket
		for range 5 {
			before = append(before, b.open(t, b.order("t", time.Hour)))
		}
		last := b.open(t, b.order("t", time.Hour))
		settle(time.Millisecond) // positions are a moment old
		out := make(chan Ticket)
		ended := make(chan error, 1)
		go func() { ended <- b.Watch(t.Context(), last.ID, out) }()
		var got []string
		next := func() { ticket := <-out; got = append(got, fmt.Sprint(ticket.State, ticket.Position)) }
		next()
		cancel := func(tickets ...Ticket) {
			for _, ticket := range tickets {
				if _, err := b.Cancel(ticket.ID); err != nil {
					t.Error(err)
				}
				settle(time.Millisecond)
			}
		}
		began := time.Now()
		cancel(before[:2]...) // all in one call: one change
		next()
		if took := time.Since(began); took < watchEvery/2 || took > 2*watchEvery {
			t.Errorf("the next one arrived after %v", took)
		}
		cancel(before[2]) // nobody receives meanwhile
		settle(time.Second)
		cancel(before[3])
		settle(time.Second)
		next()
		cancel(before[4])
		next()
		settle(2 * DefaultGrace)
		for starts := true; starts; {
			select {
			case b.starts <- struct{}{}:
			case next := <-out:
				for next.State == Waiting { // its estimate may change
					next = <-out
				}
				got = append(got, fmt.Sprint(next.State, next.Position))
				starts = false
			}
		}
		if want := []string{"WAITING6", "WAITING4", "WAITING2", "WAITING1", "CLAIMED0"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		settle(2 * DefaultGrace)
		b.is(t, last.ID, Claimed) // it was seen
	})
}

// TestOpenFailsIfSpawnFails covers a server that is stopping.
func TestOpenFailsIfSpawnFails(t *testing.T) {
	b := New(Options{Spawn: func(func(context.Context)) error { return errLeft }})
	if _, err := b.Open(t.Context(), Order{Key: "k"}); !errors.Is(err, errLeft) || len(b.byID)+len(b.byKey) > 0 {
		t.Errorf("%v; %d are known", err, len(b.byID))
	}
}
