package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/rockpool/rockpool/server/connections"
	"github.com/rockpool/rockpool/server/routes"
)

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
		s.peers = connections.Patient(peers)
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
			return connections.Patient(listener), nil
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
