package networktest

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/test/wait"
)

// A Probe was sent to an address, and needs no answer. To show that there is none, a test sends
// another probe, whose answer would come after this one's. It waits for that answer, and then
// checks this one.
type Probe struct {
	fd  int
	tcp bool
}

// Send starts a TCP connection, or sends a datagram.
func (h *Host) Send(protocol, to string, port int) (q Probe) {
	h.t.Helper()
	h.Do(func() { q = Send(h.t, protocol, "", to, port) })
	return q
}

// Send sends from the test's own namespace. Unless from is "", it is the local address and port.
func Send(t testing.TB, protocol, from, to string, port int) Probe {
	t.Helper()
	q := Probe{tcp: protocol == "tcp"}
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
	_ = unix.Connect(q.fd, sockaddr(target)) // a refused connection counts as not answered
	q.Again()
	return q
}

// Again sends one more datagram from the same socket.
func (q Probe) Again() {
	if !q.tcp {
		_, _ = unix.Write(q.fd, []byte("hello"))
	}
}

// Answered reports whether there is a connection, or an answer, which it consumes.
func (q Probe) Answered() bool {
	if q.tcp {
		_, err := unix.Getpeername(q.fd)
		return err == nil
	}
	n, _, err := unix.Recvfrom(q.fd, make([]byte, 100), unix.MSG_DONTWAIT)
	return err == nil && n > 0
}

// Await waits until it is answered.
func (q Probe) Await(t testing.TB) {
	t.Helper()
	wait.For(t, "a question is answered", q.Answered)
}

func sockaddr(at netip.AddrPort) unix.Sockaddr {
	if at.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}
	}
	return &unix.SockaddrInet6{Addr: at.Addr().As16(), Port: int(at.Port())}
}
