package executor

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// User code must not reach the agent. So listeners check the credentials that the kernel recorded when a
// peer connected.

// OwnUser returns a listener that accepts only peers that run as the agent's user. User code can't
// become that user.
func OwnUser(l *net.UnixListener) net.Listener {
	return listener{l, func(peer *unix.Ucred) bool { return int(peer.Uid) == os.Geteuid() }}
}

// OtherKernel returns a listener that accepts only peers outside of this kernel. They have no
// process id here.
func OtherKernel(l *net.UnixListener) net.Listener {
	return listener{l, func(peer *unix.Ucred) bool { return peer.Pid == 0 }}
}

// A listener closes every connection that accepts rejects, and continues.
type listener struct {
	*net.UnixListener
	accepts func(peer *unix.Ucred) bool
}

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
