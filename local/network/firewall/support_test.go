package firewall

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/test/networktest"
	"github.com/rockpool/rockpool/test/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func policy(slot int) network.Policy {
	return network.Policy{
		Offer:   network.Offer{Pool: network.Pool{V4: network.DefaultPool4, V6: network.DefaultPool6}, Bandwidth: 10_000},
		Request: network.Request{Egress: true}, Slot: slot,
	}
}

// join connects a new network namespace to the machine like a runner's.
func join(t *testing.T, id string, p network.Policy) *networktest.Host {
	t.Helper()
	h := networktest.NewHost(t)
	t.Cleanup(func() {
		if err := Remove(id); err != nil {
			t.Error(err)
		}
	})
	if err := Make(id, h.PID, p); err != nil {
		t.Fatal(err)
	}
	return h
}

// made returns the filter that Make installs on this kernel.
func made(t *testing.T, id string, p network.Policy) ruleset {
	t.Helper()
	rules, err := rulesOf(id, p)
	if err != nil {
		t.Fatal(err)
	}
	if !networktest.Refuses(t) {
		return rules.silent()
	}
	return rules
}

func reaches(t *testing.T, h *networktest.Host, to string, want bool) {
	t.Helper()
	if !want && !networktest.Refuses(t) {
		if h.Silent(to) {
			return
		}
		t.Errorf("%s answers", to)
	}
	said, err := h.Ask("tcp", to, networktest.Port)
	if (err == nil && strings.HasPrefix(said, "you are ")) != want {
		t.Errorf("%s answers %q (%v), want an answer: %t", to, said, err, want)
	} else if err != nil && !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("%s doesn't refuse immediately: %v", to, err)
	}
}

// unanswered fails the test if a query gets an answer. It first sends other queries one after the
// other over the same link: when the last one is answered, the first one's fate is decided.
func unanswered(t *testing.T, q networktest.Probe, what string, other func() (string, error)) {
	t.Helper()
	for range 4 { // more steps than any query takes through the kernel
		if said, err := other(); err != nil {
			t.Fatalf("%s: nothing is shown, since another question isn't answered either: %q, %v", what, said, err)
		}
	}
	if q.Answered() {
		t.Errorf("%s is answered", what)
	}
}

// answers returns how many of a host's queries were answered, after an older socket has got an
// answer to a query that was sent after them.
func answers(t *testing.T, all []networktest.Probe, older networktest.Probe) int {
	t.Helper()
	for range 4 {
		older.Again()
		older.Await(t)
	}
	return count(all)
}

func count(all []networktest.Probe) (answered int) {
	for _, q := range all {
		if q.Answered() {
			answered++
		}
	}
	return answered
}

// ping sends an echo request.
func ping(network, to string) error {
	conn, err := net.DialTimeout(network, to, wait.Limit)
	if err != nil {
		return err
	}
	defer conn.Close()
	echo := []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}
	if strings.HasPrefix(network, "ip6") {
		echo[0] = 128 // the kernel sets the checksum
	}
	_ = conn.SetDeadline(time.Now().Add(wait.Limit))
	if _, err := conn.Write(echo); err != nil {
		return err
	}
	for answer := make([]byte, 100); ; {
		n, _, err := conn.(*net.IPConn).ReadFrom(answer)
		if err != nil || n > 0 && (answer[0] == 0 || answer[0] == 129) {
			return err
		}
	}
}

// listen opens a UDP port on a host.
func listen(t *testing.T, h *networktest.Host, address string, port int) (conn *net.UDPConn) {
	t.Helper()
	var err error
	h.Do(func() { conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(addressed(address, port))) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func addressed(address string, port int) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(address), uint16(port))
}

func say(t *testing.T, from *net.UDPConn, to netip.AddrPort, text string) {
	t.Helper()
	if _, err := from.WriteToUDPAddrPort([]byte(text), to); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, at *net.UDPConn) (text string, from netip.AddrPort) {
	t.Helper()
	if err := at.SetReadDeadline(time.Now().Add(wait.Limit)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 100)
	n, from, err := at.ReadFromUDPAddrPort(buffer)
	if err != nil {
		t.Fatal(err)
	}
	return string(buffer[:n]), netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
}

// of returns a runner's address, of the same family as like.
func of(slot int, like string) string {
	v4, v6, err := policy(slot).Pool.Addresses(slot)
	if err != nil {
		panic(err)
	}
	if netip.MustParseAddr(like).Is4() {
		return v4.String()
	}
	return v6.String()
}
