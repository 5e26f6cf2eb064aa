package api

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/local"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/server/metrics"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/e2e/scraping"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

// TestE2EAlertsFire makes each of the example alerts of one machine fire.
func TestE2EAlertsFire(t *testing.T) {
	need.Sandboxes(t)
	t.Parallel()
	scraping.Stage{Serve: serveBeside}.Fire(t, scraping.OneMachine, map[string]scraping.Story{
		"RockpoolStartsFail":      withoutAHelper,
		"RockpoolLeaks":           withAMount,
		"RockpoolClusterProblems": withABrokenRuntime,
		"RockpoolSchedulerStuck":  withAStuckScheduler,
	})
}

// serveBeside starts a server in addition to the shared one.
func serveBeside(t *testing.T, change func(*config.Config)) (bed.Bed, func()) {
	t.Helper()
	data := t.TempDir()
	settings := bed.Settings(data, bed.CgroupsOf(data))
	change(&settings)
	return bed.ServeHere(t, settings)
}

func unchanged(*config.Config) {}

// withoutAHelper removes the program that makes sandboxes.
func withoutAHelper(t *testing.T) (before, after scraping.Scraping) {
	b, _ := serveBeside(t, unchanged)
	before = scraping.Scrape(t, b)
	helper := filepath.Join(b.Data, "local", "bin", "rockpool-sandbox")
	if err := os.Rename(helper, helper+".hidden"); err != nil {
		t.Fatal(err)
	}
	for _, maker := range bed.Makers(b.Data) {
		if err := unix.Kill(maker, unix.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	b.Change(t, object{"id": "a", "poolSize": 1})
	wait.For(t, "starts fail", func() bool {
		after = scraping.Scrape(t, b)
		return after.Value("rockpool_task_start_failures_total") > 0
	})
	if err := os.Rename(helper+".hidden", helper); err != nil {
		t.Error(err)
	}
	return before, after
}

// withAMount makes a runner whose directory is busy when it is removed.
func withAMount(t *testing.T) (before, after scraping.Scraping) {
	b, _ := serveBeside(t, unchanged)
	b.Change(t, object{"id": "a", "poolSize": 0})
	runner := b.ClaimUnreleased(t, "a")
	before = scraping.Scrape(t, b)
	at := filepath.Join(b.Data, "local", "runners", runner, "busy")
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", at, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(at, 0); err != nil {
			t.Error(err)
		}
	}()
	if err := client.Release(t.Context(), b, runner); err != nil {
		t.Log(err)
	}
	wait.For(t, "it leaks", func() bool {
		after = scraping.Scrape(t, b)
		return after.Value("rockpool_runners_leaked") == 1 && after.Value("rockpool_task_leaks_total") == 1
	})
	return before, after
}

// withABrokenRuntime selects a runtime that can't make a sandbox.
func withABrokenRuntime(t *testing.T) (before, after scraping.Scraping) {
	b, stop := serveBeside(t, unchanged)
	before = scraping.Scrape(t, b)
	stop()
	b, _ = serveBeside(t, func(c *config.Config) { c.Runtimes.OCI = []string{"broken=/bin/false"} })
	return before, scraping.Scrape(t, b)
}

// withAStuckScheduler returns invented figures: no fault of a server makes an evaluation fail three
// times.
func withAStuckScheduler(t *testing.T) (before, after scraping.Scraping) {
	var figures local.Stats
	shown := httptest.NewServer(metrics.Handler(metrics.Sources{
		Engine: func() activity.Stats { return activity.Stats{} }, Local: func() local.Stats { return figures }, Logger: zap.NewNop(),
	}))
	defer shown.Close()
	b := bed.Bed{Address: shown.URL}
	before = scraping.Scrape(t, b)
	figures.Scheduler.Depths.Failed = 1
	return before, scraping.Scrape(t, b)
}
