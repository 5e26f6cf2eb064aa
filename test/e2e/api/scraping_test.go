package api

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/wait"
)

// A Scraping is what one scrape brought, by metric.
type Scraping map[string]*dto.MetricFamily

// metrics asks the server for them, as who these headers say.
func metrics(t testing.TB, b bed.Bed, method string, as object) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, b.Address+"/metrics", nil)
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
func scrape(t testing.TB, b bed.Bed) Scraping {
	t.Helper()
	status, body := metrics(t, b, http.MethodGet, nil)
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

// Value is that of a metric with these labels, in pairs; of a histogram its count.
// It is 0 where there is none.
func (s Scraping) Value(name string, labels ...string) (sum float64) {
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

// Want compares figures, of which the keys are names with labels, in Prometheus'
// own spelling.
func (s Scraping) Want(t testing.TB, figures map[string]float64) {
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
		} else if got := s.Value(name, labels...); got != figures[figure] {
			t.Errorf("%s is %v, want %v", figure, got, figures[figure])
		}
	}
}

// Series are ours, but for the steps of workers: which were taken is up to them.
func (s Scraping) Series() (all []string) {
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

// fullWith waits until an environment has one runner, which is claimed.
func fullWith(t testing.TB, b bed.Bed, environment, runner string) {
	t.Helper()
	wait.For(t, "only one is left", func() bool {
		all := b.RunnersOf(t, environment)
		return len(all) == 1 && all[runner].State == "CLAIMED"
	})
}

var documentedMetric = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\|(.*?)\\| .+ \\|$")

// documented are the metrics of docs/metrics.md, by name: type and labels.
func documented(t testing.TB) map[string]string {
	t.Helper()
	page, err := os.ReadFile(bed.Source(t, "docs/metrics.md"))
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

// WantDocumented compares what was scraped with what is documented.
func (s Scraping) WantDocumented(t testing.TB) {
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
