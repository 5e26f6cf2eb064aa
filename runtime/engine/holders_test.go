package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/ticket"
	"github.com/rockpool/rockpool/test/refusal"
	"github.com/rockpool/rockpool/test/wait"
)

// session claims for a holder, and checks whether that resumed a claim.
func (b *bed) session(t testing.TB, in request.Claim, resumed bool) runtime.Runner {
	t.Helper()
	if in.WaitFor == nil {
		in.WaitFor = ptr(int(wait.Limit / time.Second))
	}
	r, got, err := b.Runners.ClaimOrResume(by(t, in), in)
	if err != nil || got != resumed {
		t.Fatalf("%s, resumed: %v, %v", r.ID, got, err)
	}
	if r.State != runtime.RunnerClaimed || r.Claim.Holder != *in.Holder {
		t.Errorf("%+v", r)
	}
	return r
}

func TestConcurrentClaimsOfAHolderShareOneRunner(t *testing.T) {
	b := newBed(t)
	b.stop()
	b.config.Quotas = quota.New()
	b.config.Quotas.SetTenant(runtime.Tenant{ID: "a", Quotas: runtime.Quotas{Runners: ptr(1), ClaimsPerMinute: ptr(1)}})
	b.start(t)
	if _, _, err := b.Environments.Put(asServer(t), request.Environment{ID: "a", Shared: ptr(true), PoolSize: ptr(5)}); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the pool fills", func() bool { s, _ := b.Environments.PoolStatus(runtime.Environment{ID: "a"}); return s.Idle == 5 })
	in := request.Claim{EnvironmentID: "a", Tenant: "a", Keys: "a", Holder: ptr("ada")}
	var mu sync.Mutex
	made, runners := 0, map[runtime.RunnerID]int{}
	var callers sync.WaitGroup
	for range 100 {
		callers.Go(func() {
			r, resumed, err := b.Runners.ClaimOrResume(by(t, in), in) // without a wait: a runner is idle
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			runners[r.ID]++
			if !resumed {
				made++
			}
		})
	}
	callers.Wait()
	if made != 1 || len(runners) != 1 || b.held() != 1 {
		t.Errorf("%d claims were made: %v; %d runners are held", made, runners, b.held())
	}
	used, stats := b.Callers.Usage(runtime.Tenant{ID: "a"}), b.Stats().Claims["a"]
	if used.Runners.Used != 1 || used.ClaimsPerMinute.Used != 1 || used.Waiting.Used != 0 || stats.Results[activity.ClaimMade] != 1 {
		t.Errorf("%+v, %+v", used, stats)
	}
}

// TestHolderGetsANewRunnerAfterRelease ends a holder's runner in every way, and claims again.
func TestHolderGetsANewRunnerAfterRelease(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	in := request.Claim{EnvironmentID: "a", Holder: ptr("ada"), InactivityTimeout: ptr(0)}
	for name, end := range map[string]func(r runtime.Runner){
		"released": func(r runtime.Runner) {
			if _, err := b.Runners.Release(asServer(t), r.ID); err != nil {
				t.Error(err)
			}
		},
		"crashed": func(r runtime.Runner) {
			b.fake.Kill(r.ID, runtime.GoneAgentDied)
			wait.For(t, "it has ended", func() bool { _, there := b.runnerIndex.get(r.ID); return !there })
		},
		"deleted": func(runtime.Runner) {
			if _, err := b.Environments.Delete(asServer(t), "a", true); err != nil {
				t.Error(err)
			}
			b.environment(t, "a", 1)
		},
	} {
		first := b.session(t, in, false)
		if again := b.session(t, in, true); again.ID != first.ID {
			t.Errorf("%s, then %s", first.ID, again.ID)
		}
		end(first)
		next := b.session(t, in, false)
		if next.ID == first.ID {
			t.Errorf("%s was %s", next.ID, name)
		}
		if _, err := b.Runners.Release(asServer(t), next.ID); err != nil {
			t.Error(err)
		}
	}
	in.InactivityTimeout = ptr(1)
	var last runtime.Runner
	in.WaitFor = ptr(60)
	for range 2 { // the second one resumes, unless the first one expired before
		var err error
		if last, err = b.Runners.Claim(asServer(t), in); err != nil {
			t.Fatal(err)
		}
	}
	b.expired(t, "a", 1)
	next := b.session(t, in, false)
	if next.ID == last.ID {
		t.Errorf("%s expired", next.ID)
	}
	if _, err := b.Runners.Release(asServer(t), next.ID); err != nil {
		t.Error(err)
	}
	in.InactivityTimeout = ptr(0)
	b.fake.Kill(b.session(t, in, false).ID, runtime.GoneAgentDied)
	wait.For(t, "no holder is known", func() (none bool) {
		none = true
		for range b.runnerIndex.byHolder.Range {
			none = false
		}
		return none
	})
}

// TestHolderGetsANewRunnerIfItsRunnerIsRemovedMeanwhile removes the runner after it is found and
// before its claim is renewed.
func TestHolderGetsANewRunnerIfItsRunnerIsRemovedMeanwhile(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	in := request.Claim{EnvironmentID: "a", Holder: ptr("ada")}
	first := b.session(t, in, false)
	if _, err := b.Runners.Release(asServer(t), first.ID); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "it has ended", func() bool { _, there := b.runnerIndex.get(first.ID); return !there })
	b.runnerIndex.byID.Store(first.ID, first) // as if this update arrived late
	b.runnerIndex.recordHolder(first)
	if next := b.session(t, in, false); next.ID == first.ID {
		t.Errorf("%s was gone", next.ID)
	}
}

// TestResumedClaimIsRenewed checks that nothing else of the claim changes, even if its environment
// was deleted.
func TestResumedClaimIsRenewed(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 2)
	label := []runtime.Label{{Name: "of", Value: "the first"}}
	first := b.session(t, request.Claim{EnvironmentID: "a", Holder: ptr("ada"), InactivityTimeout: ptr(600), Labels: label}, false)
	again := b.session(t, request.Claim{EnvironmentID: "a", Holder: ptr("ada"), InactivityTimeout: ptr(6)}, true)
	if again.ID != first.ID || !again.Claim.ExpiresAt.After(first.Claim.ExpiresAt) || again.Claim.InactivityTimeout != 10*time.Minute || len(again.Claim.Labels) != 1 {
		t.Errorf("%+v, then %+v", first, again)
	}
	if _, err := b.Environments.Delete(asServer(t), "a", false); err != nil {
		t.Fatal(err)
	}
	if last := b.session(t, request.Claim{EnvironmentID: "a", Holder: ptr("ada")}, true); last.ID != first.ID || !last.Claim.ExpiresAt.After(again.Claim.ExpiresAt) {
		t.Errorf("%+v, then %+v", again, last)
	}
	_, _, err := b.Runners.ClaimOrResume(asServer(t), request.Claim{EnvironmentID: "a", Holder: ptr("eve")})
	refusal.Want(t, err, runtime.CodeEnvironmentNotFound, "")
}

// TestHoldersAreScopedByTenantAndEnvironment checks that different scopes, environments and names
// never share a runner.
func TestHoldersAreScopedByTenantAndEnvironment(t *testing.T) {
	b := newBed(t)
	for _, id := range []runtime.EnvironmentID{"a", "b"} {
		b.shared(t, id, 1)
	}
	seen := map[runtime.RunnerID]string{}
	for _, in := range []request.Claim{
		{EnvironmentID: "a", Holder: ptr("x")},
		{EnvironmentID: "b", Holder: ptr("x")},
		{EnvironmentID: "a", Holder: ptr("X")},
		{EnvironmentID: "a", Holder: ptr("x ")},
		{EnvironmentID: "a", Holder: ptr("x"), Tenant: "a"},
		{EnvironmentID: "a", Holder: ptr("x"), Tenant: "b"},
		{EnvironmentID: "a", Holder: ptr("tenant/a/holder/a/x")},
		{EnvironmentID: "a", Holder: ptr("b/x")},
	} {
		r := b.session(t, in, false)
		name := fmt.Sprint(in.EnvironmentID, " ", *in.Holder, " ", in.Tenant)
		if other, taken := seen[r.ID]; taken {
			t.Errorf("%s has the runner of %s", name, other)
		}
		seen[r.ID] = name
	}
	if r, err := b.Runners.Claim(asServer(t), request.Claim{EnvironmentID: "a", Key: "x", WaitFor: ptr(60)}); err != nil || seen[r.ID] != "" || r.Claim.Holder != "" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestInvalidHoldersAreRefused(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	for _, bad := range []string{"", strings.Repeat("x", 201), "a\nb", "\x00", "\x7f", "\u0085", "\xff"} {
		_, _, err := b.Runners.ClaimOrResume(asServer(t), request.Claim{EnvironmentID: "a", Holder: &bad})
		refusal.Want(t, err, runtime.CodeInvalidInput, "holder")
		if !strings.Contains(runtime.MessageOf(err), "200") {
			t.Errorf("got %v, want the limit of 200 bytes", err)
		}
		_, err = b.Tickets.Open(asServer(t), request.Claim{EnvironmentID: "a", Holder: &bad})
		refusal.Want(t, err, runtime.CodeInvalidInput, "holder")
	}
	_, _, err := b.Runners.ClaimOrResume(asServer(t), request.Claim{EnvironmentID: "a", Holder: ptr("x"), Key: "k"})
	refusal.Want(t, err, runtime.CodeInvalidInput, "holder")
	b.session(t, request.Claim{EnvironmentID: "a", Holder: ptr(strings.Repeat("ä", 100))}, false)
}

// TestHoldersSurviveARestart also checks that, if a killed server left two runners, the later claim
// counts.
func TestHoldersSurviveARestart(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 2)
	in := request.Claim{EnvironmentID: "a", Holder: ptr("ada"), InactivityTimeout: ptr(600)}
	first := b.session(t, in, false)
	b.stop()
	b.start(t)
	if again := b.session(t, in, true); again.ID != first.ID {
		t.Errorf("%s, then %s", first.ID, again.ID)
	}
	if _, err := b.Runners.Release(asServer(t), first.ID); err != nil {
		t.Fatal(err)
	}
	second := b.session(t, in, false)
	b.stop()
	stray := func(at time.Time) runtime.RunnerID {
		id := runtime.NewRunnerID()
		if err := b.fake.Start(asServer(t), id, second.Environment, runtime.PriorityRefill); err != nil {
			t.Fatal(err)
		}
		claim := second.Claim
		claim.Epoch, claim.ClaimedAt = 1, at
		wait.For(t, "it is marked", func() bool { return b.fake.Mark(asServer(t), id, claim) == nil })
		return id
	}
	for range 5 { // however they are listed
		stray(second.Claim.ClaimedAt.Add(-time.Second))
	}
	b.start(t)
	if again := b.session(t, in, true); again.ID != second.ID {
		t.Errorf("%s, then %s", second.ID, again.ID)
	}
}

// starved makes an environment in which nothing starts before the returned function is called.
func (b *bed) starved(t *testing.T) (start func()) {
	t.Helper()
	starts := make(chan struct{})
	b.fake.OnStart(func(runtime.RunnerID) error { <-starts; return nil })
	start = sync.OnceFunc(func() { close(starts) })
	t.Cleanup(start)
	b.environment(t, "a", 0)
	return start
}

// noticedContext is a context that also reports when something begins to wait for its end.
type noticedContext struct {
	context.Context
	waits func()
}

func (c noticedContext) Done() <-chan struct{} { c.waits(); return c.Context.Done() }

type answer struct {
	runner  runtime.Runner
	resumed bool
	err     error
}

func (b *bed) ask(ctx context.Context, in request.Claim) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		r, resumed, err := b.Runners.ClaimOrResume(ctx, in)
		answers <- answer{r, resumed, err}
	}()
	return answers
}

// oneWaits waits until one claim waits in the pool.
func (b *bed) oneWaits(t *testing.T) {
	t.Helper()
	wait.For(t, "the claim waits", func() bool { s, _ := b.Environments.PoolStatus(runtime.Environment{ID: "a"}); return s.Waiting == 1 })
}

// TestClaimsOfAHolderWaitTogether checks that waiting claims of one holder are one claim, and that
// each waits for its own WaitFor.
func TestClaimsOfAHolderWaitTogether(t *testing.T) {
	b := newBed(t)
	start := b.starved(t)
	in := request.Claim{EnvironmentID: "a", Holder: ptr("ada"), WaitFor: ptr(600)}
	ctx, leave := context.WithCancel(asServer(t))
	first := b.ask(ctx, in)
	b.oneWaits(t)
	second := b.ask(asServer(t), in)
	for _, seconds := range []int{0, 1} { // they leave while the first one waits
		in := in
		in.WaitFor = &seconds
		if got := wait.Receive(t, b.ask(asServer(t), in), "its answer"); runtime.CodeOf(got.err) != runtime.CodeNoRunnerAvailable {
			t.Errorf("%+v", got)
		}
	}
	if _, total := b.usage.WaitingClaims(asServer(t), request.Waiting{}, 0, ""); total != 1 {
		t.Errorf("%d claims wait, want 1", total)
	}
	leave()
	if got := wait.Receive(t, first, "the first one leaves"); !errors.Is(got.err, context.Canceled) {
		t.Errorf("%+v", got)
	}
	start()
	got := wait.Receive(t, second, "the second one's answer")
	if got.err != nil || !got.resumed || got.runner.Claim.Holder != "ada" {
		t.Errorf("%+v", got)
	}
	if b.session(t, in, true).ID != got.runner.ID || b.held() != 1 {
		t.Errorf("%d runners are held", b.held())
	}
}

// TestErrorOfAnotherClaimIsNotShared checks that a claim whose joined claim fails claims itself,
// for the rest of its time.
func TestErrorOfAnotherClaimIsNotShared(t *testing.T) {
	b := newBed(t)
	start := b.starved(t)
	in := request.Claim{EnvironmentID: "a", Holder: ptr("ada")}
	ctx, cancel := context.WithCancelCause(asServer(t))
	errs := make(chan error, 1)
	go func() {
		in := in
		in.WaitFor = ptr(600)
		claim, err := in.Parse()
		if err == nil {
			spawn := func(f func(context.Context)) error { return b.Go(ctx, f) } // as a ticket's
			_, _, err = b.claimBy(ctx, spawn, "a", claim)
		}
		errs <- err
	}()
	b.oneWaits(t)
	in.WaitFor = ptr(600)
	joined := make(chan struct{})
	second := b.ask(noticedContext{asServer(t), sync.OnceFunc(func() { close(joined) })}, in)
	wait.Receive(t, joined, "the second one joins")
	cancel(pool.ErrUnwanted)
	if err := wait.Receive(t, errs, "the first one's error"); !errors.Is(err, pool.ErrUnwanted) {
		t.Errorf("got %v, want %v", err, pool.ErrUnwanted)
	}
	b.oneWaits(t)
	start()
	if got := wait.Receive(t, second, "the second one's answer"); got.err != nil || b.held() != 1 {
		t.Errorf("%+v; %d are held", got, b.held())
	}
}

// TestJoiningAClaimUsesUpTheWait checks a claim whose time is over when the joined claim fails: it
// must not begin to wait.
func TestJoiningAClaimUsesUpTheWait(t *testing.T) {
	b := newBed(t)
	b.stop()
	b.config.Quotas = quota.New()
	b.config.Quotas.SetTenant(runtime.Tenant{ID: "a", Quotas: runtime.Quotas{Waiting: ptr(0)}}) // so a claim that waits is refused
	b.start(t)
	b.starved(t)
	if _, _, err := b.Environments.Put(asServer(t), request.Environment{ID: "a", Shared: ptr(true)}); err != nil {
		t.Fatal(err)
	}
	in := request.Claim{EnvironmentID: "a", Tenant: "a", Keys: "a", Holder: ptr("ada"), WaitFor: ptr(1)}
	claim, err := in.Parse()
	if err != nil {
		t.Fatal(err)
	}
	key := request.HolderKey("a", claim.Claim)
	call, _ := b.sticky.join(key)
	joined := make(chan time.Time, 1)
	got := b.ask(noticedContext{by(t, in), sync.OnceFunc(func() { joined <- time.Now() })}, in)
	at := wait.Receive(t, joined, "it joins")
	wait.For(t, "its time is over", func() bool { return time.Since(at) > time.Second })
	call.err = pool.ErrUnwanted
	b.sticky.end(key, call)
	if answer := wait.Receive(t, got, "its answer"); runtime.CodeOf(answer.err) != runtime.CodeNoRunnerAvailable {
		t.Errorf("%+v", answer)
	}
}

// TestHoldersShareATicket checks that a holder's waiting tickets are one ticket, and that a later
// one resumes its runner.
func TestHoldersShareATicket(t *testing.T) {
	b := newBed(t)
	start := b.starved(t)
	in := request.Claim{Holder: ptr("ada"), InactivityTimeout: ptr(0)}
	first := b.later(t, in)
	other := in
	other.InactivityTimeout = ptr(60)
	if again := b.later(t, other); again.ID != first.ID || first.Resumed || !again.Resumed || first.State != ticket.Waiting {
		t.Errorf("%+v, then %+v", first, again)
	}
	watched, err := b.Tickets.Watch(asServer(t), first.ID)
	if err != nil {
		t.Fatal(err)
	}
	start()
	var last ticket.Ticket
	for last = range watched {
	}
	if last.State != ticket.Claimed || last.Resumed {
		t.Errorf("%+v", last)
	}
	second := b.laterWaits(t, in)
	if second.ID == first.ID || second.State != ticket.Claimed || !second.Resumed || second.Runner != last.Runner {
		t.Errorf("%+v, then %+v", last, second)
	}
	if got, err := b.Tickets.Cancel(asServer(t), second.ID); err != nil || got.State != ticket.Claimed {
		t.Errorf("%+v, %v", got, err)
	}
	if r := b.session(t, request.Claim{EnvironmentID: "a", Holder: ptr("ada")}, true); r.ID != last.Runner {
		t.Errorf("%s, not %s", r.ID, last.Runner)
	}
	if _, err := b.Runners.Release(asServer(t), last.Runner); err != nil {
		t.Fatal(err)
	}
	third := b.later(t, in)
	for third.State == ticket.Waiting {
		if third, err = b.Tickets.Get(asServer(t), third.ID); err != nil {
			t.Fatal(err)
		}
	}
	if third.State != ticket.Claimed || third.Resumed || third.Runner == last.Runner {
		t.Errorf("%+v", third)
	}
}
