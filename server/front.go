package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/server/connections"
	"github.com/rockpool/rockpool/server/routes"
)

// openFront loads the certificate and opens the access log.
func (s *Server) openFront() (err error) {
	if c := s.config.TLS; c.Enabled() {
		s.secure, err = connections.LoadCertificates(connections.Files{
			Cert: c.Cert, Key: c.Key, MinVersion: c.Version(), ClientCA: c.ClientCA, Optional: c.ClientAuth == config.ClientAuthOptional,
		}, s.logger.Named("tls"))
		if err != nil {
			return err
		}
	}
	switch logger := s.logger.Named("access"); s.config.AccessLog {
	case config.AccessLogOff, "":
	case config.AccessLogStdout:
		s.access = routes.StdoutLog(logger)
	default:
		s.access, err = routes.OpenLog(s.config.AccessLog, logger)
	}
	return err
}

// encrypt returns a TLS listener if the server uses TLS, else the given one.
func (s *Server) encrypt(of net.Listener) net.Listener {
	if s.secure == nil {
		return of
	}
	return connections.Encrypt(of, s.secure, s.logger.Named("tls"))
}

func (s *Server) knownPeers() (*clients.Limiter, error) {
	proxies, err := s.config.Proxies.Networks()
	memory, _, _ := serverMemory() // limitMemory has logged it
	return clients.New(bounds(s.config.Bounds, s.config.MaxBody, memory, fileLimit()), proxies...), err
}

// newHTTP returns the HTTP server. When streams ends, requests end.
func (s *Server) newHTTP(streams context.Context, known *clients.Limiter, requests requests) *http.Server {
	server := &http.Server{
		Handler:           s.handlers(streams, known, requests),
		BaseContext:       func(net.Listener) context.Context { return streams },
		ConnContext:       clients.ConnContext,
		ReadHeaderTimeout: 10 * time.Second, // includes the TLS handshake
		MaxHeaderBytes:    maxHead,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          zap.NewStdLog(s.logger.Named("http")),
	}
	if s.secure != nil {
		connections.Configure(server)
	}
	return server
}

// listeners has the server's listeners, certificates and access log. Open sets them.
type listeners struct {
	listener net.Listener
	peers    net.Listener              // for connections that other servers forward, or nil
	debug    net.Listener              // for profiles, or nil
	secure   *connections.Certificates // nil means no TLS
	access   *routes.Log               // nil means no access log
}

// close closes what Open has opened. Any field may be nil.
func (l *listeners) close() {
	if l.listener != nil {
		_ = l.listener.Close() // an error means that it is already closed
	}
	if l.debug != nil {
		_ = l.debug.Close()
	}
	if l.peers != nil {
		_ = l.peers.Close()
	}
	l.access.Close()
}

// openListeners opens all listeners of the configuration. If it fails, Close closes the ones that it opened.
func (s *Server) openListeners(ctx context.Context) (err error) {
	if err := s.openFront(); err != nil {
		return err
	}
	if s.listener, err = s.listen(ctx); err != nil {
		return err
	}
	if s.config.PeerListen != "" {
		peers, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.config.PeerListen)
		if err != nil {
			return fmt.Errorf("%w; set another address with --peer-listen", err)
		}
		s.peers = connections.WithDeadlines(peers)
	}
	if s.config.DebugAddress != "" {
		if s.debug, err = (&net.ListenConfig{}).Listen(ctx, "tcp", s.config.DebugAddress); err != nil {
			return fmt.Errorf("%w; set another address with --debug-address", err)
		}
	}
	return nil
}

// listenPatience is how long listen waits for an address in use. If the previous server was killed
// while it started a program, the child process holds the socket until it has executed the program.
const listenPatience = time.Second

// listen listens on the Unix socket if the server has one, else on the configured TCP address.
func (s *Server) listen(ctx context.Context) (net.Listener, error) {
	network, address, advice := "tcp", s.config.Listen, "; set another address with --listen"
	if s.Socket != "" {
		network, address, advice = "unix", s.Socket, ""
	}
	for end := time.Now().Add(listenPatience); ; {
		listener, err := (&net.ListenConfig{}).Listen(ctx, network, address)
		if err == nil {
			return connections.WithDeadlines(listener), nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			if errors.Is(err, syscall.EADDRINUSE) && s.Socket == "" {
				advice = ": another server uses it, perhaps a Rockpool" + advice + " (with make run: ROCKPOOL_LISTEN)"
			}
			return nil, fmt.Errorf("%w%s", err, advice)
		}
		select {
		case <-time.After(10 * time.Millisecond): // there is no event for a free address
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

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
