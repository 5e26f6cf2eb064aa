package helper

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// Peer returns the credentials of the process on the other side, as the kernel reports them: the
// one that connected, or the one that listens.
func Peer(conn *net.UnixConn) (peer *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return peer, errors.Join(err, failed)
}
