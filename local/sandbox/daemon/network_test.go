package daemon_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/test/networktest"
	"github.com/rockpool/rockpool/test/sandboxtest"
)

const narrow = `{"egress":true,"narrow":true}`

func verify(id, wish string) string {
	return `{"protocol":2,"command":"verify","id":"` + id + `","network":` + wish + `}`
}

func offer() *network.Offer {
	return &network.Offer{Pool: network.Pool{V4: network.DefaultPool4, V6: network.DefaultPool6}, Bandwidth: 50}
}

// The helper offers the network, and the server requests a part of it.
func TestNetworksAreOffered(t *testing.T) {
	if !networktest.Alone(t) {
		return
	}
	networktest.New(t)
	b := newBox(t)
	wish := func(id, wish string) string {
		return strings.Replace(good(id), `"resources"`, `"network":`+wish+`,"resources"`, 1)
	}
	if answer, err := b.as(server, wish("a", `{"egress":true}`), agentSocket(t, "unix")); err != nil || !answer.Final || !strings.Contains(answer.Error, "network") {
		t.Errorf("without an offer: got %+v, %v, want a final error about the network", answer, err)
	}
	b.end(syscall.SIGTERM)
	b.config.Network = offer()
	b.start()
	if answer, err := b.as(server, sandboxtest.Hello); err != nil || answer.Network == nil || answer.Network.Pool != b.config.Network.Pool {
		t.Errorf("it offers %+v, %v", answer, err)
	}
	if answer, err := b.as(server, wish("a", `{"bandwidth":51}`), agentSocket(t, "unix")); err != nil || !strings.Contains(answer.Error, "50") {
		t.Errorf("more than is offered: got %+v, %v, want the limit of 50", answer, err)
	}
	answer, err := b.as(server, wish("a", narrow), agentSocket(t, "unix"))
	if err != nil || answer.Error != "" || !network.DefaultPool4.Contains(answer.Address) {
		t.Fatalf("%+v, %v", answer, err)
	}
	inside := networktest.HostOf(t, answer.PID)
	if said, err := inside.Ask("tcp", networktest.Public4, networktest.Port); err == nil {
		t.Errorf("it reaches an address without a lease: %q", said)
	}
	lease := strings.NewReplacer("20.0.0.1", networktest.Public4).Replace(sandboxtest.Lease)
	for packet, want := range map[string]string{
		lease: "done", strings.Replace(lease, `"id":"a"`, `"id":"b"`, 1): "refused",
		verify("a", narrow): "done", verify("a", `{"egress":true}`): "changed", verify("b", narrow): "refused", verify("a", `{"bandwidth":51}`): "refused",
	} {
		answer, err := b.as(server, packet)
		got := "done"
		if answer.Changed {
			got = "changed"
		} else if answer.Error != "" {
			got = "refused"
		}
		if err != nil || got != want {
			t.Errorf("%s: %s: %+v, %v", packet, got, answer, err)
		}
	}
	if said, err := inside.Ask("tcp", networktest.Public4, networktest.Port); err != nil || !strings.HasPrefix(said, "you are ") {
		t.Errorf("it doesn't reach a leased address: %q, %v", said, err)
	}
	if answer, err := b.as(server, sandboxtest.Remove); err != nil || answer.Error != "" {
		t.Errorf("%+v, %v", answer, err)
	}
}

func TestGVisorNetworksAreOffered(t *testing.T) {
	gvisor := sandboxtest.GVisor(t)
	if !networktest.Alone(t) {
		return
	}
	networktest.New(t)
	b := newBox(t)
	b.end(syscall.SIGTERM)
	b.config.Runtimes = oci.Runtimes{oci.GVisor: {Path: gvisor}}
	b.config.Network = offer()
	b.start()
	other := strings.Replace(apart("a"), `"resources"`, `"network":`+narrow+`,"resources"`, 1)
	if answer, err := b.as(server, other, b.outside("a", server)); err != nil || answer.Error != "" || !network.DefaultPool4.Contains(answer.Address) {
		t.Errorf("with gVisor: %+v, %v", answer, err)
	}
	for _, packet := range []string{verify("a", narrow), sandboxtest.Remove} {
		if answer, err := b.as(server, packet); err != nil || answer.Error != "" {
			t.Errorf("with gVisor, %s: %+v, %v", packet, answer, err)
		}
	}
}
