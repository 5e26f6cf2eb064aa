// Package peer has listeners that refuse connections of user code, by the credentials that the
// kernel saw when the peer connected.
package peer

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// OwnUser accepts peers of the agent's own user only: user code can't be that user.
func OwnUser(l *net.UnixListener) net.Listener {
	return listener{l, func(peer *unix.Ucred) bool { return int(peer.Uid) == os.Geteuid() }}
}

// OtherKernel accepts peers from outside of this kernel only: they have no process id here.
func OtherKernel(l *net.UnixListener) net.Listener {
	return listener{l, func(peer *unix.Ucred) bool { return peer.Pid == 0 }}
}

type listener struct {
	*net.UnixListener
	accepts func(peer *unix.Ucred) bool
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if peer, err := credentials(conn); err == nil && l.accepts(peer) {
			return conn, nil
		}
		_ = conn.Close()
	}
}

func credentials(conn *net.UnixConn) (peer *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	if failed := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); failed != nil {
		return nil, failed
	}
	return peer, err
}
