package connections

import (
	"errors"
	"net"
	"sync"
	"time"
)

// A handoff is a listener that returns only some of another listener's connections.
type handoff struct {
	of     net.Listener
	conns  chan net.Conn
	once   sync.Once     // for Close
	closed chan struct{} // closed by Close
	failed chan struct{} // closed when of has failed; err is then set
	err    error
}

func newHandoff(of net.Listener) handoff {
	return handoff{of: of, conns: make(chan net.Conn), closed: make(chan struct{}), failed: make(chan struct{})}
}

// Accept implements net.Listener.
func (h *handoff) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.closed:
		return nil, net.ErrClosed
	case <-h.failed:
		return nil, h.err
	}
}

// Addr implements net.Listener.
func (h *handoff) Addr() net.Addr { return h.of.Addr() }

// accept calls handle for each connection until the other listener fails.
func (h *handoff) accept(handle func(conn net.Conn)) {
	for {
		conn, err := h.of.Accept()
		if isTemporary(err) {
			<-time.After(checkEvery)
			continue
		}
		if err != nil {
			h.err = err
			close(h.failed)
			return
		}
		handle(conn)
	}
}

// isTemporary reports whether an error doesn't mean that the listener is broken, for example without
// a free descriptor. net/http checks it in the same way.
func isTemporary(err error) bool {
	var temporary interface{ Temporary() bool }
	return errors.As(err, &temporary) && temporary.Temporary()
}

// hand makes Accept return a connection. It closes the connection if the listener ends before.
func (h *handoff) hand(conn net.Conn) {
	select {
	case h.conns <- conn:
	case <-h.closed:
		_ = conn.Close()
	case <-h.failed:
		_ = conn.Close()
	}
}
