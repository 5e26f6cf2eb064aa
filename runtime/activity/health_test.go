package activity

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
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/test/wait"
)

// working returns sources that work. A test replaces some of them.
func working(t *testing.T) Sources {
	t.Helper()
	dir := t.TempDir()
	s, err := store.Open(t.Context(), filepath.Join(dir, "db"))
	if err != nil {
		t.Fatal(err)
	}
	logs := logdir.New(filepath.Join(dir, "output"), logdir.Options{Store: s})
	t.Cleanup(func() {
		logs.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return Sources{
		Cluster: func(context.Context) (runtime.ClusterStatus, error) { return runtime.ClusterStatus{}, nil },
		Store:   func(context.Context) error { return nil },
		Logs:    logs,
		Skipped: func() []string { return nil },
		Pools:   func() []ComponentHealth { return nil },
	}
}

// stored returns the stored component with this name.
func (m *Monitor) stored(name string) ComponentHealth {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.parts[name]
}

// TestHealthOfACancelledCallerIsNotKept checks that a cancelled check doesn't change the store's
// state for other callers.
func TestHealthOfACancelledCallerIsNotKept(t *testing.T) {
	sources := working(t)
	sources.Store = func(ctx context.Context) error { return ctx.Err() }
	m := NewMonitor(sources)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if h := m.Health(ctx); h.Status != HealthDown {
		t.Errorf("the caller that left gets %+v", h)
	}
	for _, name := range []string{"store", "output", "cluster"} {
		if c := m.stored(name); c.Status == HealthDown {
			t.Errorf("%+v", c)
		}
	}
}

// TestHangingClusterIsDown checks that only the cluster is DOWN, not the store and the output.
func TestHangingClusterIsDown(t *testing.T) {
	sources := working(t)
	sources.Cluster = func(ctx context.Context) (runtime.ClusterStatus, error) {
		<-ctx.Done()
		return runtime.ClusterStatus{}, context.Cause(ctx)
	}
	m := NewMonitor(sources)
	wait.For(t, "the cluster is DOWN, and nothing else", func() bool { // a busy disk takes its time
		m.Health(t.Context())
		return m.stored("cluster").Status == HealthDown && m.stored("store").Status == HealthOK && m.stored("output").Status == HealthOK
	})
}

// Health has the pools that exist now, since when each has been in its state.
func TestHealthForgetsDeletedPools(t *testing.T) {
	sources := working(t)
	pools := []ComponentHealth{{Name: PoolComponent + "a", Status: HealthOK}, {Name: PoolComponent + "b", Status: HealthOK}}
	sources.Pools = func() []ComponentHealth { return pools }
	m := NewMonitor(sources)
	m.Health(t.Context())
	before := m.stored(PoolComponent + "b")
	pools = pools[1:]
	h := m.Health(t.Context())
	if slices.ContainsFunc(h.Components, func(c ComponentHealth) bool { return c.Name == PoolComponent+"a" }) || !slices.Contains(h.Components, before) {
		t.Errorf("%+v, want %+v and not a", h.Components, before)
	}
}

// TestOlderInspectionDoesNotReplaceANewerOne checks that both callers get the newer inspection's
// result, and that it is kept.
func TestOlderInspectionDoesNotReplaceANewerOne(t *testing.T) {
	sources := working(t)
	var asked atomic.Bool
	hangs, release := make(chan struct{}), make(chan struct{})
	sources.Cluster = func(context.Context) (status runtime.ClusterStatus, err error) { // the first call fails, the later ones succeed
		if asked.Swap(true) {
			return status, nil
		}
		close(hangs)
		<-release
		return status, errors.New("an old error")
	}
	m := NewMonitor(sources)
	first := make(chan Health)
	go func() { first <- m.Health(t.Context()) }()
	<-hangs
	cluster := func(h Health) HealthStatus {
		i := slices.IndexFunc(h.Components, func(c ComponentHealth) bool { return c.Name == "cluster" })
		return h.Components[i].Status
	}
	if h := m.Health(t.Context()); cluster(h) != HealthOK {
		t.Errorf("the second caller gets %+v", h)
	}
	close(release)
	if h := wait.Receive(t, first, "the answer to the first caller"); cluster(h) != HealthOK {
		t.Errorf("the first caller gets %+v", h)
	}
	if c := m.stored("cluster"); c.Status != HealthOK {
		t.Errorf("%+v", c)
	}
}

// TestStalledDiskIsDown checks that Health answers without reading files, and returns what it read
// before.
func TestStalledDiskIsDown(t *testing.T) {
	sources := working(t)
	last := &health.AttackRun{Tried: 2, Held: 2}
	sources.Attacks = func() (*health.AttackRun, error) { return last, nil }
	m := NewMonitor(sources)
	wait.For(t, "it has the reason", func() bool { return m.Health(t.Context()).Attacks == last }) // a busy disk takes its time

	dir := t.TempDir()
	fifo := filepath.Join(dir, "check") // opening it stalls until it is read
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	m.sources.Logs = logdir.New(dir, logdir.Options{Store: db})
	m.sources.Attacks = func() (*health.AttackRun, error) { t.Error("a file is read"); return nil, nil }
	h := m.Health(t.Context())
	if c := m.stored("output"); c.Status != HealthDown {
		t.Errorf("%+v", c)
	}
	if c := m.stored("attacks"); c.Status != HealthOK || h.Attacks != last {
		t.Errorf("%+v, and %+v", c, h.Attacks)
	}
	reader, err := os.Open(fifo)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	m.sources.Logs.Close()
}

// TestHealthReportsTheAuditLog checks the state of the audit log, and since when it has been in it.
func TestHealthReportsTheAuditLog(t *testing.T) {
	sources := working(t)
	m := NewMonitor(sources)
	if m.Health(t.Context()); m.stored("audit log").Status != "" {
		t.Errorf("without an audit log: %+v", m.stored("audit log"))
	}
	var problem error
	sources.Audit = func() error { return problem }
	m = NewMonitor(sources)
	found := func() ComponentHealth {
		m.Health(t.Context())
		return m.stored("audit log")
	}
	if c := found(); c.Status != HealthOK || c.Message != "" {
		t.Errorf("%+v", c)
	}
	problem = errors.New("it is away; 2 entries wait")
	first := found()
	if first.Status != HealthDegraded || first.Message != problem.Error() {
		t.Errorf("%+v", first)
	}
	problem = errors.New("it is away; 3 entries wait")
	if c := found(); c.Since != first.Since || c.Message != problem.Error() {
		t.Errorf("%+v after %+v", c, first)
	}
	problem = nil
	if c := found(); c.Status != HealthOK || c.Message != "" {
		t.Errorf("%+v", c)
	}
}
