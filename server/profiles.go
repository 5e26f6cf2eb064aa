package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/rockpool/rockpool/config"
)

// serveProfiles serves Go's profiles until ctx ends.
func serveProfiles(ctx context.Context, listener net.Listener) error {
	server := &http.Server{Handler: profiles(), ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// profiles responds only if the Host header is a loopback address or localhost. A page that uses
// DNS rebinding sends its own name.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := config.Loopback("", r.Host, ""); err != nil {
			http.Error(w, "use a loopback address and the port of --debug-address", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}
