package fence

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/network/networktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func policy(slot int) network.Policy {
	return network.Policy{
		Offer: network.Offer{Pool: network.Pool{V4: network.DefaultPool4, V6: network.DefaultPool6}, Bandwidth: 10_000},
		Wish:  network.Wish{Egress: true}, Slot: slot,
	}
}

// join links a new network namespace to the machine as a runner's is.
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

func reaches(t *testing.T, h *networktest.Host, to string, want bool) {
	t.Helper()
	ask := func() (string, error) { return h.Ask("tcp", to, networktest.Port) }
	if want {
		once := ask
		ask = func() (string, error) { return patiently(once) }
	}
	said, err := ask()
	if (err == nil && strings.HasPrefix(said, "you are ")) != want {
		t.Errorf("at %s it is told %q (%v), want an answer: %t", to, said, err, want)
	} else if err != nil && !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("at %s it isn't told at once: %v", to, err)
	}
}

// patiently asks again where no answer came in time: on a busy machine it can be
// late.
func patiently(ask func() (string, error)) (said string, err error) {
	for range 5 {
		said, err = ask()
		var late net.Error
		if !errors.As(err, &late) || !late.Timeout() {
			break
		}
	}
	return said, err
}

// ping asks for an echo.
func ping(network, to string) error {
	conn, err := net.DialTimeout(network, to, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	echo := []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}
	if strings.HasPrefix(network, "ip6") {
		echo[0] = 128 // the kernel sets its checksum
	}
	_ = conn.SetDeadline(time.Now().Add(time.Second))
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
