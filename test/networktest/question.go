package networktest

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/test/wait"
)

// A Question was sent to an address, and nobody waits for its answer. The test
// shows that none comes by order: it sends another question, whose answer comes
// after that of this one, waits for that, and looks at this one.
type Question struct {
	fd  int
	tcp bool
}

// Send begins a TCP connection, or sends a datagram.
func (h *Host) Send(protocol, to string, port int) (q Question) {
	h.t.Helper()
	h.Do(func() { q = Send(h.t, protocol, "", to, port) })
	return q
}

// Send sends from where the test is, and from an address and port unless from is
// "".
func Send(t testing.TB, protocol, from, to string, port int) Question {
	t.Helper()
	q := Question{tcp: protocol == "tcp"}
	kind := unix.SOCK_DGRAM
	if q.tcp {
		kind = unix.SOCK_STREAM
	}
	target := netip.AddrPortFrom(netip.MustParseAddr(to), uint16(port))
	family := unix.AF_INET
	if target.Addr().Is6() {
		family = unix.AF_INET6
	}
	var err error
	q.fd, err = unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	t.Cleanup(func() { _ = unix.Close(q.fd) })
	if from != "" {
		check(t, unix.Bind(q.fd, sockaddr(netip.MustParseAddrPort(from))))
	}
	_ = unix.Connect(q.fd, sockaddr(target)) // what was refused isn't answered
	q.Again()
	return q
}

// Again sends one more datagram from the same socket.
func (q Question) Again() {
	if !q.tcp {
		_, _ = unix.Write(q.fd, []byte("hello"))
	}
}

// Answered reports whether there is a connection by now, or an answer, which it
// takes.
func (q Question) Answered() bool {
	if q.tcp {
		_, err := unix.Getpeername(q.fd)
		return err == nil
	}
	n, _, err := unix.Recvfrom(q.fd, make([]byte, 100), unix.MSG_DONTWAIT)
	return err == nil && n > 0
}

// Await waits until it is answered.
func (q Question) Await(t testing.TB) {
	t.Helper()
	wait.For(t, "a question is answered", q.Answered)
}

func sockaddr(at netip.AddrPort) unix.Sockaddr {
	if at.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}
	}
	return &unix.SockaddrInet6{Addr: at.Addr().As16(), Port: int(at.Port())}
}
