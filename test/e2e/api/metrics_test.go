package api

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/e2e/scraping"
	"github.com/rockpool/rockpool/test/wait"
)

const claimOf = `mutation($in: ClaimRunnerInput!) { claimRunner(input: $in) { runner { id } } }`

// afterUse returns the expected figures after the first part of TestE2EMetricsCountWhatHappened.
func afterUse(starts float64) map[string]float64 {
	return map[string]float64{
		`rockpool_claims_total{environment="m",result="CLAIMED"}`:              3,
		`rockpool_claims_total{environment="m",result="NO_RUNNER_AVAILABLE"}`:  1,
		`rockpool_claims_total{environment="",result="ENVIRONMENT_NOT_FOUND"}`: 1,
		`rockpool_claims_total`:                                             5,
		`rockpool_claim_duration_seconds{environment="m"}`:                  3,
		`rockpool_pool_runners{environment="m",state="CLAIMED"}`:            3,
		`rockpool_pool_runners{environment="shell",state="IDLE"}`:           2,
		`rockpool_pool_runners`:                                             starts,
		`rockpool_pool_wanted_runners`:                                      8,
		`rockpool_pool_waiting_claims`:                                      0,
		`rockpool_pool_alert`:                                               0,
		`rockpool_executions_started_total`:                                 4,
		`rockpool_executions_finished_total{outcome="EXITED"}`:              2,
		`rockpool_executions_finished_total{outcome="TIME_LIMIT"}`:          1,
		`rockpool_executions_finished_total`:                                3,
		`rockpool_executions_unfinished`:                                    1,
		`rockpool_executions_resumed_total`:                                 0,
		`rockpool_execution_start_duration_seconds`:                         4,
		`rockpool_output_bytes_total`:                                       10 + 100000 + 3 + 4 + 2,
		`rockpool_output_lost_bytes_total`:                                  0,
		`rockpool_executions_kept_limit_bytes`:                              10 << 30,
		`rockpool_watchers{kind="EXECUTION"}`:                               1,
		`rockpool_watchers`:                                                 1,
		`rockpool_task_starts_total`:                                        starts,
		`rockpool_task_start_failures_total`:                                0,
		`rockpool_task_restores_total`:                                      0,
		`rockpool_task_kills_total`:                                         0,
		`rockpool_runner_start_phase_duration_seconds{phase="PLACE"}`:       starts,
		`rockpool_runner_start_phase_duration_seconds{phase="POSTSTART"}`:   starts,
		`rockpool_scheduler_placed_total`:                                   starts,
		`rockpool_scheduler_step_duration_seconds{type="PLACE",step="ACK"}`: starts,
		`rockpool_scheduler_evaluations`:                                    0,
		`rockpool_build_info`:                                               1,
	}
}

// TestE2EMetricsCountWhatHappened causes a known number of events, kills the server, and compares
// the metrics with these numbers.
func TestE2EMetricsCountWhatHappened(t *testing.T) {
	t.Parallel()
	data := bed.DataDir(t)
	p := bed.Serve(t, data, bed.Rockpool(t), "serve", "--data", data, "--on-stop", "keep")
	for _, starter := range []string{"shell", "python", "node", "c"} {
		p.Full(t, starter, 2)
	}
	p.Call(t, `mutation { putEnvironment(input: {id: "m", poolSize: 0}) { created } }`, nil, nil)
	p.Refused(t, claimOf, object{"in": object{"environmentId": "m"}}, runtime.CodeNoRunnerAvailable, "")
	p.Refused(t, claimOf, object{"in": object{"environmentId": "made up"}}, runtime.CodeEnvironmentNotFound, "")
	a, b, c := p.ClaimUnreleased(t, "m"), p.ClaimUnreleased(t, "m"), p.ClaimUnreleased(t, "m")
	p.Shell(t, a, "printf 0123456789")
	p.Shell(t, b, "head -c 100000 /dev/zero; printf err >&2; exit 3")
	p.Run(t, object{"runnerId": a, "shell": "printf last; sleep 60", "timeLimit": 1})
	endless := p.Start(t, object{"runnerId": c, "shell": "printf on; sleep 1000"})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var watching sync.WaitGroup
	seen := make(chan string, 10)
	watching.Go(func() { _ = p.Follow(ctx, endless, nil, func(e client.Event) error { seen <- e.Type; return nil }) })
	for wait.Receive(t, seen, "the program's output") != "ExecutionOutput" {
	}

	const starts = 2*4 + 3
	var s scraping.Scraping
	defer func() {
		t.Logf("acks %v, starts %v, runners %v", s.Value("rockpool_scheduler_acks_total"), s.Value("rockpool_task_starts_total"), s.Value("rockpool_pool_runners"))
	}()
	wait.For(t, "the last acknowledgement and start are counted, and each pool's last status is reported", func() bool {
		s = scraping.Scrape(t, p.Bed)
		return s.Value("rockpool_scheduler_acks_total") == starts && s.Value("rockpool_task_starts_total") == starts && s.Value("rockpool_pool_runners") == starts
	})
	s.Want(t, afterUse(starts))
	if kept := s.Value("rockpool_executions_kept_bytes"); kept < 100000 || kept > 1<<20 {
		t.Errorf("%v bytes are kept", kept)
	}
	s.WantDocumented(t, scraping.OneMachine)

	p.Release(t, b)
	bed.KillAgent(t, p.Cgroups, a)
	fullWith(t, p.Bed, "m", c)
	wait.For(t, "its pool says so", func() bool { return scraping.Scrape(t, p.Bed).Value("rockpool_pool_runners", "environment", "m") == 1 })
	scraping.Scrape(t, p.Bed).Want(t, map[string]float64{
		`rockpool_task_kills_total`:                              1,
		`rockpool_task_exits_total`:                              1,
		`rockpool_scheduler_stopped_total`:                       1,
		`rockpool_pool_runners{environment="m",state="CLAIMED"}`: 1,
		`rockpool_runners_leaked`:                                0,
	})
	leave()
	watching.Wait()
	wait.For(t, "there is no subscriber", func() bool { return scraping.Scrape(t, p.Bed).Value("rockpool_watchers") == 0 })

	p = p.Killed(t)
	wait.For(t, "all pools have said what they have", func() bool { return scraping.Scrape(t, p.Bed).Value("rockpool_pool_runners") == 8+1 })
	scraping.Scrape(t, p.Bed).Want(t, map[string]float64{
		`rockpool_task_restores_total`:                 8 + 1,
		`rockpool_task_lost_total`:                     0,
		`rockpool_task_starts_total`:                   0,
		`rockpool_executions_resumed_total`:            1,
		`rockpool_executions_started_total`:            0,
		`rockpool_executions_unfinished`:               1,
		`rockpool_claims_total`:                        0,
		`rockpool_output_bytes_total`:                  0,
		`rockpool_restore_skipped`:                     0,
		`rockpool_runner_start_phase_duration_seconds`: 0,
	})
	p.Call(t, `mutation($id: ID!) { cancelExecution(id: $id) { execution { id } } }`, object{"id": endless}, nil)
	p.Await(t, endless)
	scraping.Scrape(t, p.Bed).Want(t, map[string]float64{
		`rockpool_executions_finished_total{outcome="CANCELLED"}`: 1,
		`rockpool_executions_unfinished`:                          0,
	})
	p.Finish(t)
}

func TestE2EMetricsOfAFullMachine(t *testing.T) {
	t.Parallel()
	p, room := tightMachine(t, bed.DataDir(t))
	memory := room * 2 / 5 // two fit, and half of a third
	before := scraping.Scrape(t, p.Bed)
	p.Put(t, object{"id": "held", "poolSize": 0, "resources": object{"memoryMiB": memory}})
	held := p.ClaimUnreleased(t, "held")
	p.ClaimUnreleased(t, "held")
	p.Put(t, object{"id": "short", "poolSize": 1, "resources": object{"memoryMiB": memory}})
	awaitBlocked(t, p.Bed, "short", runtime.PriorityRefill)
	var s scraping.Scraping
	wait.For(t, "the pool alerts", func() bool {
		s = scraping.Scrape(t, p.Bed)
		return s.Value("rockpool_pool_alert", "environment", "short") == 1
	})
	s.Want(t, map[string]float64{
		`rockpool_scheduler_evaluations{state="BLOCKED"}`:             before.Value("rockpool_scheduler_evaluations", "state", "BLOCKED") + 1,
		`rockpool_scheduler_blocked_evaluations{dimension="MEMORY"}`:  1,
		`rockpool_scheduler_blocked_evaluations`:                      1,
		`rockpool_scheduler_blocked_total`:                            before.Value("rockpool_scheduler_blocked_total") + 1,
		`rockpool_scheduler_promised_ratio{dimension="MEMORY"}`:       float64(2*memory) / float64(room),
		`rockpool_pool_runners{environment="short",state="STARTING"}`: 1,
		`rockpool_pool_alert`:                                         1,
	})
	p.Release(t, held)
	p.Full(t, "short", 1)
	scraping.Scrape(t, p.Bed).Want(t, map[string]float64{
		`rockpool_scheduler_blocked_evaluations`: 0,
		`rockpool_scheduler_unblocked_total`:     before.Value("rockpool_scheduler_unblocked_total") + 1,
	})
}

// TestE2EMetricsSeriesDoNotGrow runs many executions in many runners while several clients scrape.
// No series is left of them.
func TestE2EMetricsSeriesDoNotGrow(t *testing.T) {
	t.Parallel()
	many := bed.Thorough(100, 500)
	const clients = 8 // twice as many as the server answers concurrently
	p := bed.ServeBinary(t, bed.DataDir(t))
	runs := func(n int) {
		var callers sync.WaitGroup
		left := make(chan bool, n)
		for range n {
			left <- true
		}
		close(left)
		for range 4 {
			callers.Go(func() {
				for range left {
					err := p.Do(t.Context(), `mutation { run(input: {environmentId: "shell", waitFor: 120, command: ["true"]}) { execution { id } } }`, nil, nil)
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
		wait.For(t, "no runner is left that was claimed", func() bool { return len(p.Full(t, "shell", 2)) == 2 })
	}
	runs(10)
	before := scraping.Scrape(t, p.Bed).Series()

	var scrapers sync.WaitGroup
	var refused atomic.Int64
	for range clients {
		scrapers.Go(func() {
			for range many / 5 {
				switch status, _ := scraping.Request(t, p.Bed, http.MethodGet, nil); status {
				case http.StatusOK:
				case http.StatusServiceUnavailable:
					refused.Add(1)
				default:
					t.Errorf("a scraper got %d", status)
				}
			}
		})
	}
	runs(many)
	scrapers.Wait()
	after := scraping.Scrape(t, p.Bed)
	if !slices.Equal(after.Series(), before) {
		t.Errorf("%d series have become %d:\n%s\n%s", len(before), len(after.Series()), before, after.Series())
	}
	after.Want(t, map[string]float64{
		`rockpool_executions_finished_total{outcome="EXITED"}`: float64(10 + many),
		`rockpool_claims_total{result="CLAIMED"}`:              float64(10 + many),
		`rockpool_task_kills_total`:                            float64(10 + many),
	})
	t.Logf("%d series; %d scrapes were refused", len(before), refused.Load())
	p.Finish(t)
}

// TestE2EMetricsNeedAToken: metrics need the same authorisation as the API.
func TestE2EMetricsNeedAToken(t *testing.T) {
	b := bed.Open(t)
	for _, test := range []struct {
		method string
		as     object
		status int
	}{
		{http.MethodGet, nil, http.StatusOK},
		{http.MethodGet, object{"Host": "localhost"}, http.StatusOK},
		{http.MethodGet, object{"Host": "evil.example.org"}, http.StatusForbidden},
		{http.MethodGet, object{"Origin": "https://evil.example.org"}, http.StatusForbidden},
		{http.MethodGet, object{"Sec-Fetch-Site": "cross-site"}, http.StatusForbidden},
		{http.MethodPost, nil, http.StatusMethodNotAllowed},
	} {
		if status, body := scraping.Request(t, b, test.method, test.as); status != test.status || (status == http.StatusOK) != strings.Contains(body, "rockpool_build_info") {
			t.Errorf("%s as %v: %d, want %d", test.method, test.as, status, test.status)
		}
	}
}

var (
	metricInRule = regexp.MustCompile(`rockpool_[a-z_]+`)
	valueInRule  = regexp.MustCompile(`\b[A-Z][A-Z_]{2,}\b`)
)

// TestExampleAlertsNameRealMetrics: the example rules name metrics and labels that exist.
func TestExampleAlertsNameRealMetrics(t *testing.T) {
	page, err := os.ReadFile(bed.Source(t, "docs/reference/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := scraping.Documented(t, scraping.OneMachine)
	maps.Copy(known, scraping.Documented(t, scraping.Nomad))
	rules := 0
	for _, group := range scraping.Groups(t) {
		for _, rule := range group.Rules {
			rules++
			if !strings.HasPrefix(rule.Alert, "Rockpool") || rule.Annotations.Summary == "" {
				t.Errorf("incomplete: %+v", rule)
			}
			if _, err := time.ParseDuration(cmp.Or(rule.For, "0")); err != nil {
				t.Error(err)
			}
			for _, name := range metricInRule.FindAllString(rule.Expr, -1) {
				base, histogram := strings.CutSuffix(name, "_bucket")
				if known[base] == "" || histogram != strings.HasPrefix(known[base], "histogram") {
					t.Errorf("%s: there is no %s", rule.Alert, name)
				}
			}
			for _, value := range valueInRule.FindAllString(rule.Expr, -1) {
				if !strings.Contains(string(page), "`"+value+"`") {
					t.Errorf("%s: no label has the value %s", rule.Alert, value)
				}
			}
		}
	}
	if one, nomad := len(scraping.Alerts(t, scraping.OneMachine)), len(scraping.Alerts(t, scraping.Nomad)); one < 10 || nomad < 10 || rules >= one+nomad {
		t.Errorf("of %d rules one machine has %d, and Nomad %d", rules, one, nomad)
	}
}

// fullWith waits until an environment has one runner, which is claimed.
func fullWith(t testing.TB, b bed.Bed, environment, runner string) {
	t.Helper()
	wait.For(t, "only one is left", func() bool {
		all := b.RunnersOf(t, environment)
		return len(all) == 1 && all[runner].State == "CLAIMED"
	})
}
