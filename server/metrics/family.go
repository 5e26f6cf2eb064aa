package metrics

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rockpool/rockpool/runtime/timing"
)

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

// Describe implements prometheus.Collector.
func (c collector[S]) Describe(to chan<- *prometheus.Desc) {
	for _, f := range c.families {
		to <- f.desc
	}
}

// Collect implements prometheus.Collector.
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

// counters are several counters with labels.
func counters[S any](name, help string, labels []string, each func(S, emitter[float64])) family[S] {
	return values(prometheus.CounterValue, name, help, labels, each)
}

// gauge is one current number.
func gauge[S any](name, help string, value func(S) float64) family[S] {
	return values(prometheus.GaugeValue, name, help, nil, func(s S, emit emitter[float64]) { emit(value(s)) })
}

// gauges are several gauges with labels.
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
