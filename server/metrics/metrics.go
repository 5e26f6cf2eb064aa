// Package metrics serves a server's metrics to Prometheus. It counts nothing itself: each scrape reads atomics and
// published state of the other packages, so no scrape blocks them. The values of labels are a closed set, or the
// environments. docs/reference/metrics.md lists all metrics; it is generated from their help.
package metrics

import (
	"cmp"
	"net/http"
	goruntime "runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/compat"
	"github.com/rockpool/rockpool/local"
	"github.com/rockpool/rockpool/nomad"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/timing"
)

// Sources have the figures. Each scrape calls the functions, also concurrently. They must not block.
type Sources struct {
	Version string
	Engine  func() activity.Stats
	Local   func() local.Stats   // nil if runners are elsewhere
	Nomad   func() nomad.Stats   // nil if the cluster isn't Nomad
	Peers   func() clients.Usage // nil if callers have no limits
	Compat  *compat.Counts       // nil without compatible APIs
	Logger  *zap.Logger
}

// Limits of scrapes. A further concurrent scrape gets 503, and so does one that takes longer.
const (
	maxScrapes   = 4
	scrapeWithin = 10 * time.Second
)

// Handler serves the metrics.
func Handler(sources Sources) http.Handler {
	metrics := registry(sources)
	return promhttp.HandlerFor(metrics, promhttp.HandlerOpts{
		ErrorLog:            zap.NewStdLog(sources.Logger),
		ErrorHandling:       promhttp.ContinueOnError,
		Registry:            metrics, // for a counter of those errors
		MaxRequestsInFlight: maxScrapes,
		Timeout:             scrapeWithin,
	})
}

// registry returns the registry of a server's metrics. It leaves out the sources that are nil.
func registry(sources Sources) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collector[string]{func() string { return sources.Version }, buildFamilies()},
		collector[activity.Stats]{sources.Engine, append(claimFamilies(), executionFamilies()...)},
	)
	if sources.Peers != nil {
		registry.MustRegister(collector[clients.Usage]{sources.Peers, peerFamilies()})
	}
	if sources.Compat != nil {
		registry.MustRegister(collector[[]compat.Count]{sources.Compat.Read, compatFamilies()})
	}
	if sources.Local != nil {
		registry.MustRegister(collector[local.Stats]{sources.Local, localFamilies()})
	}
	if sources.Nomad != nil {
		registry.MustRegister(collector[nomad.Stats]{sources.Nomad, nomadFamilies()})
	}
	return registry
}

// buildFamilies are the metrics of the server's build. Their source is its version.
func buildFamilies() []family[string] {
	return []family[string]{
		gauges("build_info", "Always 1. The labels are the versions of the server and of Go.", []string{"version", "go_version"}, func(version string, emit emitter[float64]) {
			emit(1, version, goruntime.Version())
		}),
	}
}

// A collector is a prometheus.Collector of one source.
type collector[S any] struct {
	read     func() S
	families []family[S]
}

// A Metric documents the metrics of one name.
type Metric struct {
	Name, Type, Help string
	Labels           []string
}

// All returns every metric that a server can have, except those of Go's runtime, of the process
// and of the scrapes.
func All() []Metric {
	all := slices.Concat(documented(buildFamilies()), documented(claimFamilies()), documented(executionFamilies()), documented(peerFamilies()),
		documented(compatFamilies()), documented(localFamilies()), documented(nomadFamilies()))
	slices.SortStableFunc(all, func(a, b Metric) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(all, func(a, b Metric) bool { return a.Name == b.Name }) // both clusters have some
}

// documented returns the documentation of families.
func documented[S any](families []family[S]) (all []Metric) {
	for _, f := range families {
		all = append(all, f.metric)
	}
	return all
}

// A family has the metrics of one name.
type family[S any] struct {
	metric  Metric
	desc    *prometheus.Desc
	collect func(source S, desc *prometheus.Desc, to chan<- prometheus.Metric)
}

// An emitter sends a value with the values of its labels.
type emitter[V any] func(value V, labels ...string)

func (c collector[S]) Describe(to chan<- *prometheus.Desc) {
	for _, f := range c.families {
		to <- f.desc
	}
}

func (c collector[S]) Collect(to chan<- prometheus.Metric) {
	source := c.read()
	for _, f := range c.families {
		f.collect(source, f.desc, to)
	}
}

// counter is one number that only grows while the server runs.
func counter[S any](name, help string, value func(S) int64) family[S] {
	return values(prometheus.CounterValue, name, help, nil, func(s S, emit emitter[float64]) { emit(float64(value(s))) })
}

func counters[S any](name, help string, labels []string, each func(S, emitter[float64])) family[S] {
	return values(prometheus.CounterValue, name, help, labels, each)
}

// gauge is one current number.
func gauge[S any](name, help string, value func(S) float64) family[S] {
	return values(prometheus.GaugeValue, name, help, nil, func(s S, emit emitter[float64]) { emit(value(s)) })
}

func gauges[S any](name, help string, labels []string, each func(S, emitter[float64])) family[S] {
	return values(prometheus.GaugeValue, name, help, labels, each)
}

// values are several numbers of a kind, with labels.
func values[S any](kind prometheus.ValueType, name, help string, labels []string, each func(S, emitter[float64])) family[S] {
	class := "counter"
	if kind == prometheus.GaugeValue {
		class = "gauge"
	}
	return describe(name, class, help, labels, func(s S, desc *prometheus.Desc, to chan<- prometheus.Metric) {
		each(s, func(value float64, labels ...string) {
			send(to, desc)(prometheus.NewConstMetric(desc, kind, value, labels...))
		})
	})
}

// histograms are durations, in seconds.
func histograms[S any](name, help string, labels []string, each func(S, emitter[timing.Reading])) family[S] {
	return describe(name, "histogram", help, labels, func(s S, desc *prometheus.Desc, to chan<- prometheus.Metric) {
		each(s, func(r timing.Reading, labels ...string) {
			buckets := make(map[float64]uint64, len(r.Bounds))
			var below uint64
			for i, bound := range r.Bounds {
				// Prometheus's buckets are cumulative.
				below += uint64(r.Counts[i])
				buckets[bound.Seconds()] = below
			}
			send(to, desc)(prometheus.NewConstHistogram(desc, uint64(r.Count()), r.Sum.Seconds(), buckets, labels...))
		})
	})
}

// send returns a function that sends a metric, or the reason why it can't be shown. Other metrics are still shown.
func send(to chan<- prometheus.Metric, desc *prometheus.Desc) func(prometheus.Metric, error) {
	return func(m prometheus.Metric, err error) {
		if err != nil {
			m = prometheus.NewInvalidMetric(desc, err)
		}
		to <- m
	}
}

// describe returns the family of a name, to which it adds the prefix rockpool_.
func describe[S any](name, kind, help string, labels []string, collect func(S, *prometheus.Desc, chan<- prometheus.Metric)) family[S] {
	m := Metric{prometheus.BuildFQName("rockpool", "", name), kind, help, labels}
	return family[S]{m, prometheus.NewDesc(m.Name, help, labels, nil), collect}
}
