package routes

import (
	"context"
	"net/http"
	"slices"

	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/runtime/activity"
)

// probes respond to load balancers and supervisors, which send no token. GET /health/live says that
// the process responds. GET /health/ready says that it serves requests, or 503 with the reason. The
// cluster's own message is only for callers with the right to read it.
type probes struct {
	starting  transport.Starting
	health    func(ctx context.Context) activity.Health
	admission *Admission
}

// register adds the probes' routes.
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
