// Package scraping scrapes servers as Prometheus does, compares the result with
// docs/reference/metrics.md, and finds which example alerts fire.
package scraping

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/rockpool/rockpool/test/e2e/bed"
)

// A Scraping is the result of one scrape, by metric.
type Scraping map[string]*dto.MetricFamily

// Request requests a server's metrics with these headers.
func Request(t testing.TB, b bed.Bed, method string, as map[string]any) (status int, body string) {
	t.Helper()
	status, body, err := ask(t, b, method, as)
	if err != nil {
		t.Fatal(err)
	}
	return status, body
}

func ask(t testing.TB, b bed.Bed, method string, as map[string]any) (status int, body string, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, b.Address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true // the test checks for goroutines at its end
	for name, value := range as {
		request.Header.Set(name, fmt.Sprint(value))
	}
	request.Host = request.Header.Get("Host")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}

// Scrape scrapes the server. Names must follow Prometheus' rules.
func Scrape(t testing.TB, b bed.Bed) Scraping {
	t.Helper()
	status, body := Request(t, b, http.MethodGet, nil)
	if status != http.StatusOK {
		t.Fatalf("scrape: status %d: %s", status, body)
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

// ScrapeDown is the scrape of a server that doesn't answer: empty. It fails the test if the server
// answers.
func ScrapeDown(t testing.TB, b bed.Bed) Scraping {
	t.Helper()
	if status, _, err := ask(t, b, http.MethodGet, nil); err == nil {
		t.Errorf("the server answers %d, but should be down", status)
	}
	return nil
}

// Value returns the value of a metric with these labels, given in pairs; of a histogram its count.
// It is 0 if there is none.
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

// Want compares figures. Their keys are names with labels in Prometheus' spelling.
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
			t.Errorf("the scrape has no %s", name)
		} else if got := s.Value(name, labels...); got != figures[figure] {
			t.Errorf("%s is %v, want %v", figure, got, figures[figure])
		}
	}
}

// Series returns the server's own series, except the workers' steps and the times of calls: these
// depend on which steps and calls there were.
func (s Scraping) Series() (all []string) {
	for name, f := range s {
		if strings.HasPrefix(name, "rockpool_") && name != "rockpool_scheduler_step_duration_seconds" && name != "rockpool_nomad_call_duration_seconds" {
			for _, m := range f.GetMetric() {
				all = append(all, fmt.Sprint(name, m.GetLabel()))
			}
		}
	}
	slices.Sort(all)
	return all
}
