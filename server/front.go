package server

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/compat"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/graph"
	"github.com/rockpool/rockpool/graph/transport/arriving"
	"github.com/rockpool/rockpool/graph/transport/peers"
	"github.com/rockpool/rockpool/server/accesslog"
	"github.com/rockpool/rockpool/server/metrics"
	"github.com/rockpool/rockpool/server/secure"
	"github.com/rockpool/rockpool/web"
)

// openFront loads the certificate and opens the access log.
func (s *Server) openFront() (err error) {
	if c := s.config.TLS; c.Enabled() {
		s.secure, err = secure.Load(secure.Files{
			Cert: c.Cert, Key: c.Key, MinVersion: c.Version(), ClientCA: c.ClientCA, Optional: c.ClientAuth == config.ClientAuthOptional,
		}, s.logger.Named("tls"))
		if err != nil {
			return err
		}
	}
	switch logger := s.logger.Named("access"); s.config.AccessLog {
	case config.AccessLogOff, "":
	case config.AccessLogStdout:
		s.access = accesslog.Stdout(logger)
	default:
		s.access, err = accesslog.Open(s.config.AccessLog, logger)
	}
	return err
}

// encrypt returns a TLS listener if the server uses TLS, else the given one. Writes have their
// deadline above TLS: a late write ends the connection.
func (s *Server) encrypt(of net.Listener) net.Listener {
	if s.secure == nil {
		return of
	}
	return patientListener{secure.Listen(of, s.secure, s.logger.Named("tls")), writePatience}
}

// knownPeers returns the limits of peers.
func (s *Server) knownPeers() (*peers.Peers, error) {
	proxies, err := s.config.Proxies.Networks()
	memory, _, _ := serverMemory() // limitMemory has logged it
	return peers.New(bounds(s.config.Bounds, s.config.MaxBody, memory, fileLimit()), proxies...), err
}

// newHTTP returns the HTTP server of the API and the dashboard. When streams ends, requests end.
func (s *Server) newHTTP(streams context.Context, known *peers.Peers, requests requests) *http.Server {
	c := s.config
	options := graph.Options{
		Version: Version(), AllowedHosts: c.AllowedHosts, AllowedOrigins: c.AllowedOrigins, NoIntrospection: c.NoIntrospection, Book: s.book,
		Settings: graph.Settings{MaxBody: c.MaxBody, Peers: known, Operation: accesslog.Operation}, SigningKey: s.key, Memory: s.Engine.Memory(), Started: s.Engine.Restored(), Logger: s.logger.Named("graph"),
	}
	options.Languages = c.Recipes
	if len(c.Compat) > 0 {
		options.Compat, options.Counts = compatAPIs(c.Compat, c.Cluster), new(compat.Counts)
	}
	// The paths of disabled compatible APIs say how to enable them.
	closed := slices.DeleteFunc(config.AllCompat(), func(name string) bool { return slices.Contains(c.Compat, name) })
	options.DisabledCompat = compatAPIs(closed, c.Cluster)
	if s.agents != nil {
		options.Agents = s.agents
	}
	sources := metrics.Sources{Compat: options.Counts, Version: Version(), Engine: s.Engine.Stats, Peers: known.Usage, Logger: s.logger.Named("metrics")}
	switch here := s.cluster.(type) {
	case countedLocal:
		sources.Local = here.Stats
	case countedNomad:
		sources.Nomad = here.Stats
	}
	options.Metrics = metrics.Handler(sources)
	options.Audit = s.audit
	people := s.signIn()
	options.SignIn, options.Session = people, people.Secret
	api := graph.RefuseFraming(graph.RefuseProxied(s.book, options.Logger, web.Handler(graph.Handler(s.Engine, options))))
	server := &http.Server{
		Handler:           s.wrap(known, arriving.BoundUnread(requests.count(requests.lasting(streams, api)))),
		BaseContext:       func(net.Listener) context.Context { return streams },
		ConnContext:       graph.ConnContext,
		ReadHeaderTimeout: 10 * time.Second, // includes the TLS handshake
		MaxHeaderBytes:    maxHead,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          zap.NewStdLog(s.logger.Named("http")),
	}
	if s.secure != nil {
		secure.Configure(server)
	}
	return server
}

// wrap returns a handler that serves with next. It adds the client's address and the TLS state to
// requests, adds headers that restrict browsers to responses, and logs requests.
func (s *Server) wrap(known *peers.Peers, next http.Handler) http.Handler {
	client := func(r *http.Request) netip.Addr { return peers.ClientAddress(r.Context()) }
	return secure.Handler(known.Handler(s.access.Handler(client, secure.Headers(peers.Encrypted, next))))
}
