package access

import (
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/rockpool/rockpool/runtime"
)

// echo returns what it receives, until the test ends.
func echo(t *testing.T, at string) netip.AddrPort {
	t.Helper()
	listener, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	var parts sync.WaitGroup
	parts.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			parts.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() { _ = listener.Close(); parts.Wait() })
	return netip.MustParseAddrPort(listener.Addr().String())
}

func say(at, text string) (string, error) {
	conn, err := net.Dial("tcp", at)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(text)); err != nil {
		return "", err
	}
	_ = conn.(*net.TCPConn).CloseWrite()
	all, err := io.ReadAll(conn)
	return string(all), err
}

func TestMapper(t *testing.T) {
	runner := echo(t, "127.0.0.2:0")
	m := &portMapper{At: netip.MustParseAddr("127.0.0.1"), First: 23100, Last: 23103, slots: newSharedSlots(0, maxConnections)}
	defer m.CloseAll()
	wanted := []runtime.PortMapping{{ExposedPort: int(runner.Port())}, {ExposedPort: 1}}
	mapped, err := m.Open("a", runner.Addr(), wanted)
	if err != nil {
		t.Fatal(err)
	}
	if said, err := say(mapped[0].Address, "hello"); said != "hello" || mapped[0].ExposedPort != int(runner.Port()) {
		t.Errorf("at %+v it says %q, %v", mapped[0], said, err)
	}
	if said, err := say(mapped[1].Address, "hello"); said != "" {
		t.Errorf("where nothing listens it says %q, %v", said, err)
	}
	if _, err := m.Open("a", runner.Addr(), wanted); err == nil {
		t.Error("ports are mapped twice")
	}
	others, err := m.Open("b", runner.Addr(), wanted)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Open("c", runner.Addr(), wanted); err == nil {
		t.Error("more ports are mapped than there are")
	}
	m.Close("a")
	m.Close("a")
	if _, err := net.Dial("tcp", mapped[0].Address); err == nil {
		t.Error("a port is still mapped")
	}
	again, err := m.Open("a", runner.Addr(), mapped) // the same mappings
	if err != nil || again[0] != mapped[0] || again[1] != mapped[1] {
		t.Errorf("%v, %v, want %v", again, err, mapped)
	}
	m.Close("a")
	if _, err := m.Open("c", runner.Addr(), others[:1]); err == nil {
		t.Error("another's port is taken")
	}
	// An open connection ends with its runner's ports.
	open, err := m.Open("c", runner.Addr(), wanted[:1])
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", open[0].Address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Error(err)
	}
	if said, err := say(open[0].Address, "hello"); said != "" {
		t.Errorf("with as many connections as are left, %q is said (%v)", said, err)
	}
	if said, err := say(others[0].Address, "hello"); said != "hello" {
		t.Errorf("while another runner has its share, %q is said (%v)", said, err)
	}
	m.Close("c")
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("a connection is open after Close")
	}
}
