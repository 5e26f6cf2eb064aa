package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/health"
	"github.com/rockpool/rockpool/runtime/logdir"
	"github.com/rockpool/rockpool/test/clustertest"
	"github.com/rockpool/rockpool/test/wait"
)

// stored returns the stored component with this name.
func (e *Engine) stored(name string) ComponentHealth {
	e.health.mu.Lock()
	defer e.health.mu.Unlock()
	return e.health.parts[name]
}

// TestHealthOfACancelledCallerIsNotKept checks that a cancelled check doesn't change the store's
// state for other callers.
func TestHealthOfACancelledCallerIsNotKept(t *testing.T) {
	b := newBed(t)
	tx, err := b.database(t).Begin() // so that the check waits
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if h := b.Health(ctx); h.Status != HealthDown {
		t.Errorf("the caller that left gets %+v", h)
	}
	for _, name := range []string{"store", "output", "cluster"} {
		if c := b.stored(name); c.Status == HealthDown {
			t.Errorf("%+v", c)
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
}

// A hanging cluster doesn't answer Status while hangs is set.
type hanging struct {
	runtime.Cluster
	hangs atomic.Bool
}

func (c *hanging) Status(ctx context.Context) (runtime.ClusterStatus, error) {
	if c.hangs.Load() {
		<-ctx.Done()
		return runtime.ClusterStatus{}, context.Cause(ctx)
	}
	return c.Cluster.Status(ctx)
}

// TestHangingClusterIsDown checks that only the cluster is DOWN, not the store and the output.
func TestHangingClusterIsDown(t *testing.T) {
	b := &bed{fake: clustertest.NewFake(), dir: t.TempDir()}
	cluster := &hanging{Cluster: b.fake}
	b.cluster = cluster
	t.Cleanup(func() {
		if err := b.fake.Close(); err != nil {
			t.Error(err)
		}
	})
	b.start(t)
	cluster.hangs.Store(true)
	wait.For(t, "the cluster is DOWN, and nothing else", func() bool { // a busy disk takes its time
		b.Health(t.Context())
		return b.stored("cluster").Status == HealthDown && b.stored("store").Status == HealthOK && b.stored("output").Status == HealthOK
	})
}

// A slow cluster's first Status fails once release is closed; all others succeed.
type slow struct {
	runtime.Cluster
	asked   atomic.Bool
	hangs   chan struct{}
	release chan struct{}
}

func (c *slow) Status(ctx context.Context) (runtime.ClusterStatus, error) {
	if c.asked.Swap(true) {
		return c.Cluster.Status(ctx)
	}
	close(c.hangs)
	<-c.release
	return runtime.ClusterStatus{}, errors.New("an old error")
}

// TestOlderInspectionDoesNotReplaceANewerOne checks that both callers get the newer inspection's
// result, and that it is kept.
func TestOlderInspectionDoesNotReplaceANewerOne(t *testing.T) {
	b := newBed(t)
	c := &slow{Cluster: b.fake, hangs: make(chan struct{}), release: make(chan struct{})}
	b.stop()
	b.Engine.cluster = c
	first := make(chan Health)
	go func() { first <- b.Health(t.Context()) }()
	<-c.hangs
	if c := b.component(t, "cluster"); c.Status != HealthOK {
		t.Errorf("%+v", c)
	}
	close(c.release)
	h := wait.Receive(t, first, "the answer to the first caller")
	if i := slices.IndexFunc(h.Components, func(c ComponentHealth) bool { return c.Name == "cluster" }); i < 0 || h.Components[i].Status != HealthOK {
		t.Errorf("the first caller gets %+v", h)
	}
	if c := b.stored("cluster"); c.Status != HealthOK {
		t.Errorf("%+v", c)
	}
}

// TestStalledDiskIsDown checks that Health answers without reading files, and returns what it read
// before.
func TestStalledDiskIsDown(t *testing.T) {
	b := newBed(t)
	b.stop()
	last := &health.AttackRun{Tried: 2, Held: 2}
	b.health.readAttacks = func() (*health.AttackRun, error) { return last, nil }
	dir := t.TempDir()
	b.logs = logdir.New(dir, logdir.Options{Store: b.store})
	wait.For(t, "it has the reason", func() bool { return b.Health(t.Context()).Attacks == last }) // a busy disk takes its time
	b.logs.Close()

	fifo := filepath.Join(dir, "check") // opening it stalls until it is read
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	b.logs = logdir.New(dir, logdir.Options{Store: b.store})
	b.health.readAttacks = func() (*health.AttackRun, error) { t.Error("a file is read"); return nil, nil }
	h := b.Health(t.Context())
	if c := b.stored("output"); c.Status != HealthDown {
		t.Errorf("%+v", c)
	}
	if c := b.stored("attacks"); c.Status != HealthOK || h.Attacks != last {
		t.Errorf("%+v, and %+v", c, h.Attacks)
	}
	reader, err := os.Open(fifo)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	b.logs.Close()
}

// TestHealthReportsTheAuditLog checks the state of the audit log, and since when it has been in it.
func TestHealthReportsTheAuditLog(t *testing.T) {
	b := newBed(t)
	if c := b.stored("audit log"); c.Status != "" {
		t.Errorf("without an audit log: %+v", c)
	}
	b.stop()
	var problem atomic.Pointer[error]
	b.config.Audit = func() error {
		if err := problem.Load(); err != nil {
			return *err
		}
		return nil
	}
	b.start(t)
	found := func() ComponentHealth {
		b.Health(t.Context())
		return b.stored("audit log")
	}
	if c := found(); c.Status != HealthOK || c.Message != "" {
		t.Errorf("%+v", c)
	}
	away := errors.New("it is away; 2 entries wait")
	problem.Store(&away)
	first := found()
	if first.Status != HealthDegraded || first.Message != away.Error() {
		t.Errorf("%+v", first)
	}
	more := errors.New("it is away; 3 entries wait")
	problem.Store(&more)
	if c := found(); c.Since != first.Since || c.Message != more.Error() {
		t.Errorf("%+v after %+v", c, first)
	}
	problem.Store(nil)
	if c := found(); c.Status != HealthOK || c.Message != "" {
		t.Errorf("%+v", c)
	}
}
