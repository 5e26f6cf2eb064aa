package nomad

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/nomad/api"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/store"
)

// reloadAfter is much shorter than the interval of refreshes.
const reloadAfter = 5 * time.Second

// overEngine runs an engine on the world's server until the test ends. It has a pool of three
// runners, of which one is claimed. It returns that runner, and a function that returns the alerts
// so far.
func (w *world) overEngine() (*engine.Engine, runtime.Runner, func() string) {
	w.t.Helper()
	w.again(func(c *Config) { c.Relist = 10 * time.Minute })
	dir := w.t.TempDir()
	s, err := store.Open(w.t.Context(), filepath.Join(dir, "db"))
	if err != nil {
		w.t.Fatal(err)
	}
	e := engine.New(w.cluster, s, engine.Config{Dir: dir, Logger: zap.NewNop(), Alert: pool.AlertRule{Threshold: 0.9, Timeout: reloadAfter}})
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	parts.Go(func() { _ = e.Run(ctx) })
	w.t.Cleanup(func() {
		cancel()
		parts.Wait()
		if err := s.Close(); err != nil {
			w.t.Error(err)
		}
	})
	<-e.Restored()
	size, none := 3, runtime.IsolationNone
	if _, _, err := e.Environments.Put(access.With(w.t.Context(), access.Server()), request.Environment{ID: "a", PoolSize: &size, Isolation: &none}); err != nil {
		w.t.Fatal(err)
	}
	time.Sleep(10 * time.Second)
	used, err := e.Runners.Claim(access.With(w.t.Context(), access.Server()), request.Claim{EnvironmentID: "a"})
	if err != nil {
		w.t.Fatal(err)
	}
	time.Sleep(10 * time.Second)
	alerts, err := e.Environments.WatchAlerts(access.With(ctx, access.Server()), "")
	if err != nil {
		w.t.Fatal(err)
	}
	var mu sync.Mutex
	var told []string
	parts.Go(func() {
		for a := range alerts {
			mu.Lock()
			told = append(told, string(a.State))
			mu.Unlock()
		}
	})
	return e, used, func() string {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		defer func() { told = nil }()
		return strings.Join(told, " ")
	}
}

// placeAll gives every job without an allocation one.
func (w *world) placeAll() {
	for id, job := range w.jobs {
		if job.ParameterizedJob == nil && !slices.ContainsFunc(w.allocs, func(a *api.AllocationListStub) bool { return a.JobID == id }) {
			w.place(id)
		}
	}
}

// A pool that is short of runners for the reload timeout raises an alert and is read again. So it
// learns what no event reported, long before the next interval. The holder of a runner isn't
// affected.
func TestShortPoolIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e, used, told := w.overEngine()
		alone := func() string {
			var state string
			w.locked(func() {
				name := w.cluster.names().Runner(used.ID)
				state = fmt.Sprintln(*w.jobs[name].JobModifyIndex, w.live(used.ID).ID, w.vars[w.cluster.names().Claim(used.ID)].ModifyIndex)
			})
			r, there, _ := e.Runners.Get(access.With(t.Context(), access.Server()), used.ID)
			return fmt.Sprintln(state, there, r.State, r.Claim.Epoch)
		}
		before := alone()
		w.locked(func() { w.unplaced, w.disturb = true, func(string) []string { return nil } })
		if _, err := e.Runners.Claim(access.With(t.Context(), access.Server()), request.Claim{EnvironmentID: "a"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(reloadAfter - time.Second)
		w.locked(w.placeAll)
		time.Sleep(500 * time.Millisecond)
		if status, _ := e.Environments.PoolStatus(runtime.Environment{ID: "a"}); status.Idle != 2 || told() != "" {
			t.Errorf("nobody can know yet, and it is %+v", status)
		}
		time.Sleep(time.Second)
		if all := told(); !strings.HasPrefix(all, "R") || !strings.HasSuffix(all, " RESOLVED") { // a slow subscriber misses RELOADING
			t.Errorf("told: %q", all)
		}
		if status, _ := e.Environments.PoolStatus(runtime.Environment{ID: "a"}); status.Idle != 3 || len(standing(t, e)) > 0 {
			t.Errorf("afterwards it is %+v", status)
		}
		if after := alone(); after != before || !strings.Contains(after, "CLAIMED") {
			t.Errorf("the runner in use was %s, and is %s", before, after)
		}
	})
}

// Without resources the alert stays and has the reason, and Nomad's lists are read repeatedly. It
// is resolved when there are resources.
func TestAlertLastsUntilResourcesAreFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e, _, told := w.overEngine()
		w.locked(func() { w.unplaced = true })
		for range 3 {
			if _, err := e.Runners.Claim(access.With(t.Context(), access.Server()), request.Claim{EnvironmentID: "a"}); err != nil {
				t.Fatal(err)
			}
		}
		w.locked(func() { clear(w.calls) })
		time.Sleep(5*reloadAfter + time.Second)
		alerts := standing(t, e)
		if len(alerts) != 1 || alerts[0].Idle != 0 || !strings.Contains(alerts[0].Reason, "memory exhausted on 1 node") {
			t.Errorf("%+v", alerts)
		}
		w.locked(func() {
			if n := w.calls["GET /v1/jobs"]; n < 4 || n > 20 {
				t.Errorf("%d lists", n)
			}
			w.placeAll()
		})
		time.Sleep(time.Second)
		if all := told(); !strings.Contains(all, "RELOADING RAISED") || !strings.HasSuffix(all, " RESOLVED") || len(standing(t, e)) > 0 {
			t.Errorf("told: %q", all)
		}
	})
}

// standing returns all standing alerts.
func standing(t *testing.T, e *engine.Engine) []runtime.PoolAlert {
	t.Helper()
	alerts, err := e.Environments.Alerts(access.With(t.Context(), access.Server()))
	if err != nil {
		t.Fatal(err)
	}
	return alerts
}
