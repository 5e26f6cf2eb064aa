package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/rockpool/rockpool/server/accesslog"
	"github.com/rockpool/rockpool/server/secure"
)

// listeners has the server's listeners, its certificates and its access log. Open fills it.
type listeners struct {
	listener net.Listener
	peers    net.Listener         // of what other servers pass on; nil: they pass nothing on
	debug    net.Listener         // of the profiles; nil: they aren't served
	secure   *secure.Certificates // nil: without TLS
	access   *accesslog.Log       // nil: requests aren't logged
}

func (l *listeners) close() {
	if l.listener != nil {
		_ = l.listener.Close() // serving has closed it, or never began
	}
	if l.debug != nil {
		_ = l.debug.Close() // likewise
	}
	if l.peers != nil {
		_ = l.peers.Close() // likewise
	}
	l.access.Close()
}

// openListeners opens all that the configuration names. If it fails, Close closes what it opened.
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
		s.peers = patientListener{peers, writePatience}
	}
	if s.config.DebugAddress != "" {
		if s.debug, err = (&net.ListenConfig{}).Listen(ctx, "tcp", s.config.DebugAddress); err != nil {
			return fmt.Errorf("%w; set another address with --debug-address", err)
		}
	}
	return nil
}

// listenPatience is how long an address that is taken is waited for: a server
// that was just killed may have been starting a program, whose process has its
// socket until it is executed.
const listenPatience = time.Second

func (s *Server) listen(ctx context.Context) (net.Listener, error) {
	network, address, advice := "tcp", s.config.Listen, "; set another address with --listen"
	if s.Socket != "" {
		network, address, advice = "unix", s.Socket, ""
	}
	for end := time.Now().Add(listenPatience); ; {
		listener, err := (&net.ListenConfig{}).Listen(ctx, network, address)
		if err == nil {
			return patientListener{listener, writePatience}, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			return nil, fmt.Errorf("%w%s", err, advice)
		}
		select {
		case <-time.After(10 * time.Millisecond): // it can't be waited for otherwise
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
