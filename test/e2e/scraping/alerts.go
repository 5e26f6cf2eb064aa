package scraping

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/goccy/go-yaml"

	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/need"
)

// A Rule is one of the example alerts.
type Rule struct {
	Alert, Expr, For string
	Annotations      struct{ Summary string }
}

// A Group is a group of example alerts.
type Group struct {
	Name  string
	Rules []Rule
}

// Groups returns the example alerts.
func Groups(t testing.TB) []Group {
	t.Helper()
	text, err := os.ReadFile(rules(t))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Groups []Group }
	if err := yaml.UnmarshalWithOptions(text, &file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	return file.Groups
}

// Alerts returns the names of a cluster's example alerts: those of both clusters, and its own.
func Alerts(t testing.TB, of Cluster) (names []string) {
	t.Helper()
	own := "rockpool-" + strings.ToLower(strings.ReplaceAll(string(of), " ", "-"))
	for _, group := range Groups(t) {
		if group.Name == "rockpool" || group.Name == own {
			for _, rule := range group.Rules {
				names = append(names, rule.Alert)
			}
		}
	}
	slices.Sort(names)
	return names
}

func rules(t testing.TB) string {
	t.Helper()
	return bed.Source(t, "docs/alerts.example.yaml")
}

// lasts is the number of minutes for which the change between two scrapes is repeated: longer than
// any rule waits and looks back.
const lasts = 40

// WantFiring repeats the change between two scrapes, a minute apart: counters grow by the same each
// minute, and gauges keep their values. It fails the test if the alert doesn't fire then.
func WantFiring(t testing.TB, alert string, before, after Scraping) {
	t.Helper()
	if why := promtool(t, before, after, fmt.Sprintf(`clamp_max(count(ALERTS{alertname=%q,alertstate="firing"}), 1)`, alert), true); why != "" {
		t.Errorf("%s doesn't fire: %s", alert, why)
	}
}

// WantSilent fails the test if an alert fires, or is pending.
func WantSilent(t testing.TB, alert string, before, after Scraping) {
	t.Helper()
	if why := promtool(t, before, after, fmt.Sprintf(`count(ALERTS{alertname=%q})`, alert), false); why != "" {
		t.Errorf("%s fires, but nothing has happened: %s", alert, why)
	}
}

// WantQuiet fails the test if any alert fires, or is pending.
func WantQuiet(t testing.TB, before, after Scraping) {
	t.Helper()
	if why := promtool(t, before, after, `count by (alertname) (ALERTS)`, false); why != "" {
		t.Errorf("an alert fires, but the server is healthy: %s", why)
	}
}

// promtool evaluates the example rules with Prometheus' own tool. If wanted, it returns why an
// expression's result isn't 1, otherwise why it isn't empty.
func promtool(t testing.TB, before, after Scraping, expression string, wanted bool) string {
	t.Helper()
	need.Sandboxes(t)
	type sample struct {
		Labels string  `yaml:"labels"`
		Value  float64 `yaml:"value"`
	}
	samples := []sample{}
	if wanted {
		samples = append(samples, sample{"{}", 1})
	}
	type object = map[string]any
	text, err := yaml.Marshal(object{
		"rule_files": []string{rules(t)}, "evaluation_interval": "1m",
		"tests": []object{{
			"interval": "1m", "input_series": series(before, after),
			"promql_expr_test": []object{{"expr": expression, "eval_time": fmt.Sprintf("%dm", lasts), "exp_samples": samples}},
		}},
	})
	file := filepath.Join(t.TempDir(), "test.yaml")
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "promtool", "test", "rules", file)
	cmd.Stdout, cmd.Stderr = &said, &said
	switch err := cmd.Run(); {
	case err == nil:
		return ""
	case cmd.ProcessState == nil:
		need.Lacks(t, "%v: scripts/needs tests installs it", err)
	}
	return said.String()
}

// An input is a series in promtool's format.
type input struct {
	Series string `yaml:"series"`
	Values string `yaml:"values"`
}

// series continues two scrapes.
func series(before, after Scraping) []input {
	up := "1"
	if after == nil {
		up = "0"
	}
	all := []input{{`up{job="rockpool",instance="test"}`, fmt.Sprintf("1 %sx%d", up, lasts-1)}}
	old := before.points()
	for name, now := range after.points() {
		was, known := old[name]
		first, step := strconv.FormatFloat(was.value, 'g', -1, 64), 0.0
		if !known {
			first = "_"
		}
		if now.counts {
			if step = now.value - was.value; step < 0 {
				step = now.value // the server restarted
			}
		}
		all = append(all, input{name, fmt.Sprintf("%s %s+%sx%d", first, decimal(now.value), decimal(step), lasts-1)})
	}
	slices.SortFunc(all, func(a, b input) int { return strings.Compare(a.Series, b.Series) })
	return all
}

func decimal(value float64) string { return strconv.FormatFloat(value, 'f', -1, 64) }

// A point is one series' value in a scrape.
type point struct {
	value  float64
	counts bool
}

// points returns the server's own series, by their names in Prometheus' spelling.
func (s Scraping) points() map[string]point {
	all := map[string]point{}
	for name, f := range s {
		if !strings.HasPrefix(name, "rockpool_") {
			continue
		}
		for _, m := range f.GetMetric() {
			add := func(name string, value float64, counts bool, more ...string) {
				all[spell(name, m, more)] = point{value, counts}
			}
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				add(name, m.GetCounter().GetValue(), true)
			case dto.MetricType_HISTOGRAM:
				h := m.GetHistogram()
				for _, b := range h.GetBucket() {
					add(name+"_bucket", float64(b.GetCumulativeCount()), true, "le", strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64))
				}
				add(name+"_sum", h.GetSampleSum(), true)
				add(name+"_count", float64(h.GetSampleCount()), true)
			default:
				add(name, m.GetGauge().GetValue(), false)
			}
		}
	}
	return all
}

func spell(name string, m *dto.Metric, more []string) string {
	labels := []string{`job="rockpool"`, `instance="test"`}
	for _, l := range m.GetLabel() {
		labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	for i := 0; i < len(more); i += 2 {
		labels = append(labels, fmt.Sprintf("%s=%q", more[i], more[i+1]))
	}
	return name + "{" + strings.Join(labels, ",") + "}"
}
