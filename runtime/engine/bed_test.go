package engine

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/runtime/timing"
	"github.com/rockpool/rockpool/test/clustertest"
	"github.com/rockpool/rockpool/test/wait"
)

// This is slow: it runs hundreds of executions, restores them, and waits for claims to expire after
// seconds.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bed runs an engine over a fake cluster and a real store.
type bed struct {
	*Engine
	fake    *clustertest.Fake
	cluster runtime.Cluster
	dir     string
	config  Config       // Dir and Logger are set by start
	clock   timing.Clock // zero means the engine's own
	stop    func()
}

// patient is the WaitFor of a claim that must not end without a runner, in seconds.
const patient = int(wait.Limit / time.Second)

func newBed(t testing.TB) *bed {
	t.Helper()
	b := &bed{fake: clustertest.NewFake(), dir: t.TempDir()}
	b.cluster = b.fake
	b.config.Alert = pool.AlertRule{Threshold: 0.5, Timeout: 200 * time.Millisecond}
	t.Cleanup(func() {
		if err := b.fake.Close(); err != nil {
			t.Error(err)
		}
	})
	b.start(t)
	return b
}

// start runs an engine on the data of an earlier one.
func (b *bed) start(t testing.TB) {
	t.Helper()
	s, err := store.Open(asServer(t), filepath.Join(b.dir, "db"))
	if err != nil {
		t.Fatal(err)
	}
	b.config.Dir, b.config.Logger = b.dir, zap.NewNop()
	b.config.Boot = timing.ReadBoot()
	b.Engine = New(b.cluster, s, b.config)
	if b.clock != (timing.Clock{}) {
		b.Engine.clock = b.clock
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v, want %v", err, context.Canceled)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(b.stop)
	<-b.Restored()
}

// asServer returns a context of the server itself, which may do everything.
func asServer(t testing.TB) context.Context { return access.With(t.Context(), access.Server()) }

// as returns a context of a caller of one tenant with the role ADMIN.
func as(t testing.TB, tenant runtime.TenantID) context.Context {
	return access.With(t.Context(), access.Principal{Kind: access.KindToken, ID: "token of " + tenant.String(), Tenant: tenant, Role: access.Admin})
}

// by returns a context of the caller that a claim names: one of its tenant, or the server itself.
func by(t testing.TB, in request.Claim) context.Context {
	if in.Tenant == "" {
		return asServer(t)
	}
	return as(t, in.Tenant)
}

func ptr[T any](v T) *T { return &v }

func (b *bed) environment(t testing.TB, id runtime.EnvironmentID, size int) {
	t.Helper()
	if _, _, err := b.Environments.Put(asServer(t), request.Environment{ID: id, PoolSize: &size}); err != nil {
		t.Fatal(err)
	}
}

// shared puts an environment that every tenant may use.
func (b *bed) shared(t testing.TB, id runtime.EnvironmentID, size int) {
	t.Helper()
	if _, _, err := b.Environments.Put(asServer(t), request.Environment{ID: id, PoolSize: &size, Shared: ptr(true)}); err != nil {
		t.Fatal(err)
	}
}

func (b *bed) claim(t testing.TB, id runtime.EnvironmentID) runtime.Runner {
	t.Helper()
	r, err := b.Runners.Claim(asServer(t), request.Claim{EnvironmentID: id, WaitFor: ptr(patient)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// claimFor claims a runner that expires after some seconds without use.
func (b *bed) claimFor(t testing.TB, id runtime.EnvironmentID, seconds int) runtime.Runner {
	t.Helper()
	r, err := b.Runners.Claim(asServer(t), request.Claim{EnvironmentID: id, InactivityTimeout: &seconds, WaitFor: ptr(patient)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// expired returns when a new unused claim has expired, so that earlier unused ones with the same
// timeout have, too.
func (b *bed) expired(t testing.TB, id runtime.EnvironmentID, seconds int) {
	t.Helper()
	r := b.claimFor(t, id, seconds)
	wait.For(t, "an unused claim expires", func() bool { _, there := b.runnerIndex.get(r.ID); return !there })
}

func (b *bed) run(t testing.TB, id runtime.RunnerID, argv ...string) runtime.Execution {
	t.Helper()
	x, err := b.Executions.Start(asServer(t), request.Start{RunnerID: id, Command: argv})
	if err != nil {
		t.Fatal(err)
	}
	return b.await(t, x.ID)
}

func (b *bed) await(t testing.TB, id runtime.ExecutionID) runtime.Execution {
	t.Helper()
	x, err := b.Executions.Get(asServer(t), id, wait.Limit)
	if err != nil {
		t.Fatal(err)
	}
	if x.State != runtime.ExecutionFinished {
		t.Fatalf("still %s after %s", x.State, wait.Limit)
	}
	return x
}

// events reads an execution's events up to the end.
func (b *bed) events(t testing.TB, id runtime.ExecutionID, after string) (output string, all []events.Event) {
	t.Helper()
	r, err := b.Executions.Events(asServer(t), id, after)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		event, err := r.Next(asServer(t))
		if errors.Is(err, io.EOF) {
			return output, all
		}
		if err != nil {
			t.Fatal(err)
		}
		output += string(event.Data)
		all = append(all, event)
	}
}

// output returns a page of an execution's output, with the cursor after it, and whether that is the end.
func (b *bed) output(id runtime.ExecutionID, after string, maxBytes int) (chunks []events.Event, next string, end bool, err error) {
	page, err := b.Executions.Output(access.With(context.Background(), access.Server()), id, after, maxBytes)
	if err != nil {
		return nil, "", false, err
	}
	defer page.Close()
	return page.Rest(func(events.Event) error { return nil })
}
