// Package pipes has a listener for connections in memory, so that servers run under
// testing/synctest.
package pipes

import "net"

// A Listener accepts the connections that are sent to it. Close the channel to end it: the method
// Close keeps it open.
type Listener chan net.Conn

// Accept implements net.Listener.
func (l Listener) Accept() (net.Conn, error) {
	conn, ok := <-l
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

// Close implements net.Listener.
func (Listener) Close() error { return nil }

// Addr implements net.Listener.
func (Listener) Addr() net.Addr { return &net.UnixAddr{} }
