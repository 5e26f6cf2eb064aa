package server

import (
	"context"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/clients/socket"
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

// knownPeers returns the limits of peers.
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
		ConnContext:       socket.ConnContext,
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
