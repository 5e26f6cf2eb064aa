// Package routes serves all addresses of a server: the API, downloads, doors, metrics, probes and a
// short page. The Gate in front of them checks each request's Host and Origin before its body is read.
// The Admission authenticates callers. The Log is the access log.
package routes

import (
	"context"
	"net/http"

	"github.com/rockpool/rockpool/doors"
	"github.com/rockpool/rockpool/graph/download"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/runtime/activity"
)

// Options are what is served, and to whom. Where a handler is nil, nothing is there.
type Options struct {
	Admission   *Admission         // authenticates callers of the API, the downloads and the metrics
	API         http.Handler       // serves /graphql to authenticated callers
	Downloads   download.Handler   // serves /files/ and /outputs/
	Doors       []doors.Door       // APIs of other systems
	ClosedDoors []doors.Door       // disabled doors: their paths respond with how to enable them
	Host        doors.Host         // what the doors use
	Counts      *doors.Counts      // counts the doors' requests; nil only without doors
	Agents      http.Handler       // serves /agent/ without authentication
	Metrics     http.Handler       // serves /metrics to authenticated callers
	Starting    transport.Starting // downloads and doors wait for its end
	Origins     []string           // accepted origins in addition to the server's own
	Health      func(ctx context.Context) activity.Health
}

// New returns the handler of all addresses. When a request's base context ends, its subscriptions end.
func New(o Options) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/graphql", o.Admission.GuardOperations(o.API))
	mux.HandleFunc("OPTIONS /graphql", func(w http.ResponseWriter, _ *http.Request) { transport.WrongMethod(w) })
	downloads := http.NewServeMux()
	o.Downloads.Register(downloads)
	// Downloads and doors need the engine's state.
	for _, path := range []string{"/files/", "/outputs/"} {
		mux.Handle(path, o.Starting.Guard(downloads))
	}
	others := http.NewServeMux()
	methods, headers := doors.Open(others, o.Host, o.Admission, o.Counts, o.Doors...)
	for _, door := range o.Doors {
		mux.Handle(door.Path(), o.Starting.Guard(others))
	}
	for _, door := range o.ClosedDoors {
		mux.Handle(door.Path(), doors.Closed(door))
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
