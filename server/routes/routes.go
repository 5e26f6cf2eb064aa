// Package routes serves all addresses of a server: the API, downloads, compatible APIs, metrics, probes and a
// short page. The Gate in front of them checks each request's Host and Origin before its body is read.
// The Admission authenticates callers. The Log is the access log.
package routes

import (
	"context"
	"net/http"

	"github.com/rockpool/rockpool/compat"
	"github.com/rockpool/rockpool/graph/download"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/runtime/activity"
)

// Options are the handlers and their callers. The address of a nil handler responds 404.
type Options struct {
	Admission      *Admission         // authenticates callers of the API, the downloads and the metrics
	API            http.Handler       // serves /graphql to authenticated callers
	Downloads      download.Handler   // serves /files/ and /outputs/
	Compat         []compat.API       // APIs of other systems
	DisabledCompat []compat.API       // disabled ones: their paths respond with how to enable them
	Services       compat.Services    // what compatible APIs use
	Counts         *compat.Counts     // counts requests to compatible APIs; nil only without any
	Agents         http.Handler       // serves /agent/ without authentication
	Metrics        http.Handler       // serves /metrics to authenticated callers
	Starting       transport.Starting // downloads and compatible APIs wait for its end
	Origins        []string           // accepted origins in addition to the server's own
	Health         func(ctx context.Context) activity.Health
}

// New returns the handler of all addresses. When a request's base context ends, its subscriptions end.
func New(o Options) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/graphql", o.Admission.GuardOperations(o.API))
	mux.HandleFunc("OPTIONS /graphql", func(w http.ResponseWriter, _ *http.Request) { transport.WrongMethod(w) })
	downloads := http.NewServeMux()
	o.Downloads.Register(downloads)
	// Downloads and compatible APIs need the engine's state.
	for _, path := range []string{"/files/", "/outputs/"} {
		mux.Handle(path, o.Starting.Guard(downloads))
	}
	others := http.NewServeMux()
	methods, headers := compat.Mount(others, o.Services, o.Admission, o.Counts, o.Compat...)
	for _, api := range o.Compat {
		mux.Handle(api.Path(), o.Starting.Guard(others))
	}
	for _, api := range o.DisabledCompat {
		mux.Handle(api.Path(), compat.Disabled(api))
	}
	if o.Agents != nil {
		mux.Handle("/agent/", o.Agents)
	}
	mux.HandleFunc("GET /{$}", welcome)
	probes{o.Starting, o.Health, o.Admission}.register(mux)
	if o.Metrics != nil {
		mux.Handle("GET /metrics", o.Admission.Guard(o.Admission.For("metrics", o.Metrics)))
	}
	return crossOrigin(o.Origins, methods, headers, mux)
}
