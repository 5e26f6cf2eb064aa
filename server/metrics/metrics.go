// Package metrics shows what a server counts to Prometheus. It counts nothing
// itself: with each scrape it reads what the parts have counted with atomics,
// and what they publish anyway, so that nobody waits for a scrape. Labels are
// bounded: by a closed set, or by the number of environments. docs/reference/metrics.md
// lists all metrics.
package metrics

import (
	"net/http"
	goruntime "runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/doors"
	"github.com/rockpool/rockpool/graph/transport/peers"
	"github.com/rockpool/rockpool/local"
	"github.com/rockpool/rockpool/nomad"
	"github.com/rockpool/rockpool/runtime/engine"
)

// Sources are what is shown. Their functions are called with every scrape, by
// several at once, and must not wait for anything.
type Sources struct {
	Version string
	Engine  func() engine.Stats
	Local   func() local.Stats // nil: the cluster isn't this machine
	Nomad   func() nomad.Stats // nil: it isn't Nomad
	Peers   func() peers.Usage // nil: nobody is bounded
	Doors   *doors.Counts      // nil: there are none
	Logger  *zap.Logger
}

// Bounds of scrapes: more at once are refused with 503, and what takes longer
// too.
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

func registry(sources Sources) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collector[string]{func() string { return sources.Version }, buildFamilies()},
		collector[engine.Stats]{sources.Engine, append(claimFamilies(), executionFamilies()...)},
	)
	if sources.Peers != nil {
		registry.MustRegister(collector[peers.Usage]{sources.Peers, peerFamilies()})
	}
	if sources.Doors != nil {
		registry.MustRegister(collector[[]doors.Count]{sources.Doors.Read, doorFamilies()})
	}
	if sources.Local != nil {
		registry.MustRegister(collector[local.Stats]{sources.Local, localFamilies()})
	}
	if sources.Nomad != nil {
		registry.MustRegister(collector[nomad.Stats]{sources.Nomad, nomadFamilies()})
	}
	return registry
}

func buildFamilies() []family[string] {
	return []family[string]{
		gauges("build_info", "Always 1. The labels are the versions of the server and of Go.", []string{"version", "go_version"}, func(version string, emit emitter[float64]) {
			emit(1, version, goruntime.Version())
		}),
	}
}
