package scraping

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"
)

// A Cluster is one of the two clusters, in the words of the headings of docs/reference/metrics.md
// and of the groups of the example alerts.
type Cluster string

// The clusters.
const (
	OneMachine Cluster = "on one machine"
	Nomad      Cluster = "on Nomad"
)

func (c Cluster) other() Cluster {
	if c == Nomad {
		return OneMachine
	}
	return Nomad
}

var documentedMetric = regexp.MustCompile("^\\| `([a-z_]+)` \\| ([a-z]+) \\|(.*?)\\| .+ \\|$")

// Documented returns the metrics in docs/reference/metrics.md that a cluster has without compatible APIs, by
// name: type and labels.
func Documented(t testing.TB, of Cluster) map[string]string {
	t.Helper()
	page, err := os.ReadFile(bed.Source(t, "docs/reference/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for section := range strings.SplitSeq(string(page), "\n## ") {
		if strings.HasPrefix(section, "Only "+string(of.other())) || strings.HasPrefix(section, "Only with --compat") {
			continue
		}
		for line := range strings.SplitSeq(section, "\n") {
			if row := documentedMetric.FindStringSubmatch(line); row != nil {
				labels := strings.Fields(strings.NewReplacer("`", "", ",", "").Replace(row[3]))
				slices.Sort(labels)
				all[row[1]] = fmt.Sprint(row[2], labels)
			}
		}
	}
	return all
}

// WantDocumented compares a scrape with the documentation of the cluster.
func (s Scraping) WantDocumented(t testing.TB, of Cluster) {
	t.Helper()
	documented := Documented(t, of)
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
			t.Errorf("%s is %q, but documented as %q", name, is, cmp.Or(documented[name], "nothing"))
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("%s is documented, but the server doesn't have it", name)
	}
}
