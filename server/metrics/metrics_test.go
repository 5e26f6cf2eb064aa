package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/local"
	"github.com/rockpool/rockpool/local/runner"
	"github.com/rockpool/rockpool/local/scheduler"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/test/clustertest"
	"github.com/rockpool/rockpool/test/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs an engine over a fake cluster, which isn't this machine; what is
// local is shown as it is before anything happened.
func run(t testing.TB) (*engine.Engine, Sources) {
	t.Helper()
	dir, fake := t.TempDir(), clustertest.NewFake()
	s, err := store.Open(t.Context(), filepath.Join(dir, "db"))
	if err != nil {
		t.Fatal(err)
	}
	e := engine.New(fake, s, engine.Config{Dir: dir, Logger: zap.NewNop(), KeepBytes: 1 << 30})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(ignore(<-ended, context.Canceled), s.Close(), fake.Close()); err != nil {
			t.Error(err)
		}
	})
	<-e.Restored()
	machine := runtime.Resources{CPUMHz: 1000, MemoryMiB: 1000, Processes: 1000, WorkspaceMiB: 1000}
	placing, err := scheduler.New(scheduler.Config{Logger: zap.NewNop(), Machine: machine})
	if err != nil {
		t.Fatal(err)
	}
	counts := runner.NewCounts()
	return e, Sources{Version: "1.2.3", Engine: e.Stats, Logger: zap.NewNop(), Local: func() local.Stats {
		return local.Stats{Scheduler: placing.Stats(), Node: placing.Node(), Tasks: counts.Read()}
	}}
}

func ignore(err, ignored error) error {
	if errors.Is(err, ignored) {
		return nil
	}
	return err
}

func ptr[T any](v T) *T { return &v }

func put(t testing.TB, e *engine.Engine, id runtime.EnvironmentID, size int) {
	t.Helper()
	if _, _, err := e.Environments.Put(access.With(t.Context(), access.Server()), request.Environment{ID: id, PoolSize: &size}); err != nil {
		t.Fatal(err)
	}
}

func scrape(t testing.TB, handler http.Handler) (status int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	return w.Code, w.Body.String()
}

// series are the lines of a scrape that aren't comments, without their values.
func series(body string) map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, "#") {
			all[line[:strings.LastIndexByte(line, ' ')]] = true
		}
	}
	return all
}

func TestMetricsAreWellNamed(t *testing.T) {
	e, sources := run(t)
	put(t, e, "a", 1)
	status, body := scrape(t, Handler(sources))
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	if err != nil || len(problems) > 0 || status != http.StatusOK {
		t.Errorf("%d: %+v, %v", status, problems, err)
	}
	for _, want := range []string{
		`rockpool_build_info{go_version="go1.`, `version="1.2.3"} 1`,
		`rockpool_pool_wanted_runners{environment="a"} 1`, `rockpool_scheduler_promised_ratio{dimension="CPU"} 0`,
		"go_goroutines ", "process_open_fds ", "promhttp_metric_handler_errors_total",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in\n%s", want, body)
		}
	}
}

// Runners and executions that ended leave no series.
func TestEndedExecutionsLeaveNoSeries(t *testing.T) {
	e, sources := run(t)
	put(t, e, "a", 2)
	round := func() {
		r, err := e.Runners.Claim(access.With(t.Context(), access.Server()), request.Claim{EnvironmentID: "a", WaitFor: ptr(30)})
		if err != nil {
			t.Fatal(err)
		}
		x, err := e.Executions.Start(access.With(t.Context(), access.Server()), request.Start{RunnerID: r.ID, Command: []string{"echo", "x"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Executions.Get(access.With(t.Context(), access.Server()), x.ID, time.Minute); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Runners.Release(access.With(t.Context(), access.Server()), r.ID); err != nil {
			t.Fatal(err)
		}
	}
	round()
	_, body := scrape(t, Handler(sources))
	before := series(body)
	for range 500 {
		round()
	}
	_, body = scrape(t, Handler(sources))
	for s := range series(body) {
		if !before[s] {
			t.Errorf("a new series: %s", s)
		}
	}
	if !strings.Contains(body, `rockpool_executions_finished_total{outcome="EXITED"} 501`) {
		t.Error("501 executions were not counted")
	}
}

// A scrape over the limit gets 503, and no other scrape waits for it.
func TestTooManyConcurrentScrapesAreRefused(t *testing.T) {
	e, sources := run(t)
	begun, goOn := make(chan bool, maxScrapes), make(chan bool)
	sources.Engine = func() activity.Stats {
		begun <- true
		<-goOn
		return e.Stats()
	}
	handler := Handler(sources)
	var all sync.WaitGroup
	for range maxScrapes {
		all.Go(func() {
			if status, _ := scrape(t, handler); status != http.StatusOK {
				t.Errorf("one that came first got %d", status)
			}
		})
		<-begun
	}
	for range 100 {
		if status, _ := scrape(t, handler); status != http.StatusServiceUnavailable {
			t.Errorf("one too many got %d", status)
		}
	}
	close(goOn)
	all.Wait()
	if status, _ := scrape(t, handler); status != http.StatusOK {
		t.Errorf("a later one got %d", status)
	}
}

func TestSlowScrapesTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan bool)
		handler := Handler(Sources{Logger: zap.NewNop(), Engine: func() activity.Stats { <-goOn; return activity.Stats{} }})
		began := time.Now()
		status, body := scrape(t, handler)
		if took := time.Since(began); status != http.StatusServiceUnavailable || took != scrapeWithin {
			t.Errorf("%d after %s: %s", status, took, body)
		}
		close(goOn)
		synctest.Wait()
	})
}

// An invalid metric is counted as an error, and the others are still shown.
func TestInvalidMetricsSpoilNoOthers(t *testing.T) {
	_, sources := run(t)
	sources.Engine = func() activity.Stats {
		return activity.Stats{Pools: []activity.PoolStats{{PoolStatus: runtime.PoolStatus{EnvironmentID: "\xff"}}, {PoolStatus: runtime.PoolStatus{EnvironmentID: "fine", Idle: 3}}}}
	}
	handler := Handler(sources)
	status, body := scrape(t, handler)
	if status != http.StatusOK || !strings.Contains(body, `rockpool_pool_runners{environment="fine",state="IDLE"} 3`) {
		t.Errorf("%d: %s", status, body)
	}
	if _, body = scrape(t, handler); !strings.Contains(body, `promhttp_metric_handler_errors_total{cause="gathering"} 1`) {
		t.Error("the error isn't counted")
	}
}

// A server whose runners are elsewhere has no metrics of this machine.
func TestNomadServersHaveNoLocalMetrics(t *testing.T) {
	_, sources := run(t)
	sources.Local = nil
	status, body := scrape(t, Handler(sources))
	if status != http.StatusOK || strings.Contains(body, "rockpool_scheduler") || !strings.Contains(body, "rockpool_executions_started_total 0") {
		t.Errorf("%d: %s", status, body)
	}
}

// stalledClient is a client that reads nothing.
type stalledClient struct {
	*httptest.ResponseRecorder
	began chan bool
	goOn  chan bool
}

func (w stalledClient) Write(p []byte) (int, error) {
	w.began <- true
	<-w.goOn
	return len(p), nil
}

// Clients that read slowly block no other scrapes.
func TestSlowReadersBlockNoScrapes(t *testing.T) {
	_, sources := run(t)
	handler := Handler(sources)
	slow := stalledClient{httptest.NewRecorder(), make(chan bool), make(chan bool)}
	var all sync.WaitGroup
	for range 3 * maxScrapes {
		all.Go(func() {
			handler.ServeHTTP(slow, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		})
		<-slow.began
	}
	if status, _ := scrape(t, handler); status != http.StatusOK {
		t.Errorf("beside slow ones another got %d", status)
	}
	close(slow.goOn)
	all.Wait()
}

func BenchmarkScrape(b *testing.B) {
	for _, size := range []int{10, 1000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			e, sources := run(b)
			put(b, e, "a", size)
			wait.For(b, "the pool is full", func() bool { return e.Stats().Pools[0].Idle >= size })
			handler := Handler(sources)
			for b.Loop() {
				scrape(b, handler)
			}
		})
	}
}
