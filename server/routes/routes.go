// Package routes serves all addresses of a server: the API, downloads, compatible APIs, metrics, probes and a
// short page. The Gate in front of them checks each request's Host and Origin before its body is read.
// The Admission authenticates callers. The Log is the access log.
package routes

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/rockpool/rockpool/clients"
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

// probes respond to load balancers and supervisors, which send no token. GET /health/live says that
// the process responds. GET /health/ready says that it serves requests, or 503 with the reason. The
// cluster's own message is only for callers with the right to read it.
type probes struct {
	starting  transport.Starting
	health    func(ctx context.Context) activity.Health
	admission *Admission
}

func (p probes) register(mux *http.ServeMux) {
	mux.HandleFunc("GET /health/live", func(w http.ResponseWriter, _ *http.Request) { probed(w, http.StatusOK, "live") })
	mux.HandleFunc("GET /health/ready", func(w http.ResponseWriter, r *http.Request) {
		if p.starting.IsOver() {
			probed(w, http.StatusOK, "ready")
			return
		}
		why := "the server is starting: it waits for its cluster"
		if caller, err := p.admission.Authenticate(r); err == nil && caller.Allow("cluster") == nil {
			all := p.health(r.Context()).Components
			if i := slices.IndexFunc(all, func(c activity.ComponentHealth) bool { return c.Name == "cluster" }); i >= 0 && all[i].Message != "" {
				why += "\n" + all[i].Message
			}
		}
		probed(w, http.StatusServiceUnavailable, why)
	})
}

// probed writes the text of a probe, which must not be cached.
func probed(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n"))
}

// welcome responds to requests for the server's address with where the API is.
func welcome(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	scheme := "http"
	if clients.Encrypted(r) {
		scheme = "https"
	}
	_, _ = fmt.Fprintf(w, `Rockpool runs other people's programs, each in an isolated runner. In a browser,
this address is its dashboard.

The API is GraphQL, at %[2]s://%[1]s/graphql: queries and mutations by POST,
subscriptions over a WebSocket with the subprotocol graphql-transport-ws, or as
server-sent events (Accept: text/event-stream).

    curl %[2]s://%[1]s/graphql -H 'Content-Type: application/json' \
         -d '{"query": "{ version environments { id pool { idle size reason } } }"}'

Or run a program:

    rockpool run hello.py

Prometheus scrapes %[2]s://%[1]s/metrics.
`, r.Host, scheme)
}
