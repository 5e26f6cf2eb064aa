package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
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

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

// A scraping is what one scrape brought, by metric.
type scraping map[string]*dto.MetricFamily

// metrics asks the server for them, as who these headers say.
func (b bed) metrics(t testing.TB, method string, as object) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, b.url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true // the test looks for goroutines at its end
	for name, value := range as {
		request.Header.Set(name, fmt.Sprint(value))
	}
	request.Host = request.Header.Get("Host")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// scrape scrapes the server, and insists on names that follow Prometheus' rules.
func (b bed) scrape(t testing.TB) scraping {
	t.Helper()
	status, body := b.metrics(t, http.MethodGet, nil)
	if status != http.StatusOK {
		t.Fatalf("%d: %s", status, body)
	}
	if problems, err := promlint.New(strings.NewReader(body)).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%+v, %v", problems, err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// value is that of a metric with these labels, in pairs; of a histogram its count.
// It is 0 where there is none.
func (s scraping) value(name string, labels ...string) (sum float64) {
	for _, m := range s[name].GetMetric() {
		if !hasLabels(m, labels) {
			continue
		}
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return sum
}

func hasLabels(m *dto.Metric, wanted []string) bool {
	for i := 0; i < len(wanted); i += 2 {
		if !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == wanted[i] && l.GetValue() == wanted[i+1] }) {
			return false
		}
	}
	return true
}

// want compares figures, of which the keys are names with labels, in Prometheus'
// own spelling.
func (s scraping) want(t testing.TB, figures map[string]float64) {
	t.Helper()
	for _, figure := range slices.Sorted(maps.Keys(figures)) {
		name, rest, _ := strings.Cut(figure, "{")
		var labels []string
		for pair := range strings.SplitSeq(strings.TrimSuffix(rest, "}"), ",") {
			if label, value, ok := strings.Cut(pair, "="); ok {
				labels = append(labels, label, strings.Trim(value, `"`))
			}
		}
		if s[name] == nil {
			t.Errorf("no %s", name)
		} else if got := s.value(name, labels...); got != figures[figure] {
			t.Errorf("%s is %v, want %v", figure, got, figures[figure])
		}
	}
}

// series are ours, but for the steps of workers: which were taken is up to them.
func (s scraping) series() (all []string) {
	for name, f := range s {
		if strings.HasPrefix(name, "rockpool_") && name != "rockpool_scheduler_step_duration_seconds" {
			for _, m := range f.GetMetric() {
				all = append(all, fmt.Sprint(name, m.GetLabel()))
			}
		}
	}
	slices.Sort(all)
	return all
}

const claimOf = `mutation($in: ClaimRunnerInput!) { claimRunner(input: $in) { runner { id } } }`

// TestE2EMetricsSayWhatHappened has a counted number of things happen, kills the
// server, and compares.
func TestE2EMetricsSayWhatHappened(t *testing.T) {
	t.Parallel()
	data := dataDir(t)
	p := serve(t, data, rockpool(t), "serve", "--data", data, "--on-stop", "keep")
	for _, starter := range []string{"shell", "python", "node", "c"} {
		p.full(t, starter, 2)
	}
	p.call(t, `mutation { putEnvironment(input: {id: "m", poolSize: 0}) { created } }`, nil, nil)
	p.refused(t, claimOf, object{"in": object{"environmentId": "m"}}, runtime.CodeNoRunnerAvailable, "")
	p.refused(t, claimOf, object{"in": object{"environmentId": "made up"}}, runtime.CodeEnvironmentNotFound, "")
	a, b, c := p.claimLoosely(t, "m"), p.claimLoosely(t, "m"), p.claimLoosely(t, "m")
	p.shell(t, a, "printf 0123456789")
	p.shell(t, b, "head -c 100000 /dev/zero; printf err >&2; exit 3")
	p.run(t, object{"runnerId": a, "shell": "printf last; sleep 60", "timeLimit": 1})
	endless := p.start(t, object{"runnerId": c, "shell": "printf on; sleep 1000"})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var watching sync.WaitGroup
	seen := make(chan string, 10)
	watching.Go(func() { _ = p.follow(ctx, endless, nil, func(e executionEvent) { seen <- e.Type }) })
	for wait.Receive(t, seen, "the program's output") != "ExecutionOutput" {
	}

	const starts = 2*4 + 3
	var s scraping
	wait.For(t, "the last acknowledgement is counted, and each pool's last status is there", func() bool {
		s = p.scrape(t)
		return s.value("rockpool_scheduler_acks_total") == starts && s.value("rockpool_pool_runners") == starts
	})
	s.want(t, map[string]float64{
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
	})
	if kept := s.value("rockpool_executions_kept_bytes"); kept < 100000 || kept > 1<<20 {
		t.Errorf("%v bytes are kept", kept)
	}
	s.wantDocumented(t)

	p.release(t, b)
	killAgent(t, p.cgroups, a)
	p.fullWith(t, "m", c)
	wait.For(t, "its pool says so", func() bool { return p.scrape(t).value("rockpool_pool_runners", "environment", "m") == 1 })
	p.scrape(t).want(t, map[string]float64{
		`rockpool_task_kills_total`:                              1,
		`rockpool_task_exits_total`:                              1,
		`rockpool_scheduler_stopped_total`:                       1,
		`rockpool_pool_runners{environment="m",state="CLAIMED"}`: 1,
		`rockpool_runners_leaked`:                                0,
	})
	leave()
	watching.Wait()
	wait.For(t, "nobody watches", func() bool { return p.scrape(t).value("rockpool_watchers") == 0 })

	p = p.killed(t)
	wait.For(t, "all pools have said what they have", func() bool { return p.scrape(t).value("rockpool_pool_runners") == 8+1 })
	p.scrape(t).want(t, map[string]float64{
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
	p.call(t, `mutation($id: ID!) { cancelExecution(id: $id) { execution { id } } }`, object{"id": endless}, nil)
	p.await(t, endless)
	p.scrape(t).want(t, map[string]float64{
		`rockpool_executions_finished_total{outcome="CANCELLED"}`: 1,
		`rockpool_executions_unfinished`:                          0,
	})
	p.finish(t)
}

// fullWith waits until an environment has one runner, which is claimed.
func (b bed) fullWith(t testing.TB, environment, runner string) {
	t.Helper()
	wait.For(t, "only one is left", func() bool {
		all := b.runnersOf(t, environment)
		return len(all) == 1 && all[runner].State == "CLAIMED"
	})
}

func TestE2EMetricsOfAFullMachine(t *testing.T) {
	t.Parallel()
	p, room := tightMachine(t, dataDir(t))
	memory := room * 2 / 5 // two fit, and half a one more
	before := p.scrape(t)
	p.put(t, object{"id": "held", "poolSize": 0, "resources": object{"memoryMiB": memory}})
	held := p.claimLoosely(t, "held")
	p.claimLoosely(t, "held")
	p.put(t, object{"id": "short", "poolSize": 1, "resources": object{"memoryMiB": memory}})
	p.awaitBlocked(t, "short", runtime.PriorityRefill)
	var s scraping
	wait.For(t, "the pool alerts", func() bool {
		s = p.scrape(t)
		return s.value("rockpool_pool_alert", "environment", "short") == 1
	})
	s.want(t, map[string]float64{
		`rockpool_scheduler_evaluations{state="BLOCKED"}`:             before.value("rockpool_scheduler_evaluations", "state", "BLOCKED") + 1,
		`rockpool_scheduler_blocked_evaluations{dimension="MEMORY"}`:  1,
		`rockpool_scheduler_blocked_evaluations`:                      1,
		`rockpool_scheduler_blocked_total`:                            before.value("rockpool_scheduler_blocked_total") + 1,
		`rockpool_scheduler_promised_ratio{dimension="MEMORY"}`:       float64(2*memory) / float64(room),
		`rockpool_pool_runners{environment="short",state="STARTING"}`: 1,
		`rockpool_pool_alert`:                                         1,
	})
	p.release(t, held)
	p.full(t, "short", 1)
	p.scrape(t).want(t, map[string]float64{
		`rockpool_scheduler_blocked_evaluations`: 0,
		`rockpool_scheduler_unblocked_total`:     before.value("rockpool_scheduler_unblocked_total") + 1,
	})
}

// TestE2EMetricsStayAsMany: many runners and executions, which many scrape
// meanwhile, leave no series behind.
func TestE2EMetricsStayAsMany(t *testing.T) {
	t.Parallel()
	many := thorough(100, 500)
	const clients = 8 // twice as many as are answered at once
	p := serveBinary(t, dataDir(t))
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
					err := p.Ask(t.Context(), `mutation { run(input: {environmentId: "shell", waitFor: 120, command: ["true"]}) { execution { id } } }`, nil, nil)
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
		p.full(t, "shell", 2) // all have ended
	}
	runs(10)
	before := p.scrape(t).series()

	var scrapers sync.WaitGroup
	var refused atomic.Int64
	for range clients {
		scrapers.Go(func() {
			for range many / 5 {
				switch status, _ := p.metrics(t, http.MethodGet, nil); status {
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
	after := p.scrape(t)
	if !slices.Equal(after.series(), before) {
		t.Errorf("%d series have become %d:\n%s\n%s", len(before), len(after.series()), before, after.series())
	}
	after.want(t, map[string]float64{
		`rockpool_executions_finished_total{outcome="EXITED"}`: float64(10 + many),
		`rockpool_claims_total{result="CLAIMED"}`:              float64(10 + many),
		`rockpool_task_kills_total`:                            float64(10 + many),
	})
	t.Logf("%d series; %d scrapes were refused", len(before), refused.Load())
	p.finish(t)
}

// Metrics are behind the gate of the API.
func TestE2EMetricsAreGuarded(t *testing.T) {
	b := e2e(t)
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
		if status, body := b.metrics(t, test.method, test.as); status != test.status || (status == http.StatusOK) != strings.Contains(body, "rockpool_build_info") {
			t.Errorf("%s as %v: %d, want %d", test.method, test.as, status, test.status)
		}
	}
}

var documentedMetric = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\|(.*?)\\| .+ \\|$")

// documented are the metrics of docs/metrics.md, by name: type and labels.
func documented(t testing.TB) map[string]string {
	t.Helper()
	page, err := os.ReadFile("docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, row := range documentedMetric.FindAllStringSubmatch(string(page), -1) {
		labels := strings.Fields(strings.NewReplacer("`", "", ",", "").Replace(row[3]))
		slices.Sort(labels)
		all[row[1]] = fmt.Sprint(row[2], labels)
	}
	return all
}

// wantDocumented compares what was scraped with what is documented.
func (s scraping) wantDocumented(t testing.TB) {
	t.Helper()
	documented := documented(t)
	for name, f := range s {
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue
		}
		var labels []string
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName())
			}
		}
		slices.Sort(labels)
		is := fmt.Sprint(strings.ToLower(f.GetType().String()), slices.Compact(labels))
		if documented[name] != is {
			t.Errorf("%s is %q, and documented as %q", name, is, cmp.Or(documented[name], "nothing"))
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("%s is documented, and isn't there", name)
	}
}

var (
	metricInRule = regexp.MustCompile(`rockpool_[a-z_]+`)
	valueInRule  = regexp.MustCompile(`\b[A-Z][A-Z_]{2,}\b`)
)

// The example's rules name metrics and values that there are.
func TestExampleAlerts(t *testing.T) {
	text, err := os.ReadFile("docs/alerts.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For string
				Annotations      struct{ Summary string }
			}
		}
	}
	if err := yaml.UnmarshalWithOptions(text, &file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	known, rules := documented(t), 0
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			rules++
			if group.Name == "" || !strings.HasPrefix(rule.Alert, "Rockpool") || rule.Annotations.Summary == "" {
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
	if rules < 5 {
		t.Errorf("only %d rules", rules)
	}
}
