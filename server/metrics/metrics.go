// Package metrics serves a server's metrics to Prometheus. It counts nothing itself: each scrape reads atomics and
// published state of the other packages, so no scrape blocks them. The values of labels are a closed set, or the
// environments. docs/reference/metrics.md lists all metrics; it is generated from their help.
package metrics

import (
	"net/http"
	goruntime "runtime"
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
