package local

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/rockpool/rockpool/local/host"
	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/networktest"
	"github.com/rockpool/rockpool/test/refusal"
	"github.com/rockpool/rockpool/test/sandboxtest"
	"github.com/rockpool/rockpool/test/wait"
)

// TestNetwork has one world and one process for all its parts.
func TestNetwork(t *testing.T) {
	t.Parallel()
	if !networktest.Alone(t) {
		return
	}
	networktest.New(t)
	t.Run("policy", func(t *testing.T) { testPolicy(t, nil, networkEnvironment, noRoute) })
	t.Run("policy with runc", func(t *testing.T) {
		path, err := exec.LookPath("runc")
		if err != nil {
			need.Lacks(t, "no runc: %v", err)
		}
		testPolicy(t, oci.Runtimes{"runc": {Path: path}}, func(n runtime.Network) runtime.Environment {
			env := networkEnvironment(n)
			env.Runtime = "runc"
			return env
		}, noRoute)
	})
	t.Run("the next server", testNextServer)
	t.Run("killed creates", testKilledCreates)
	t.Run("a flush", testFlush)
	t.Run("refused", testRefused)
}

func TestGVisorNetwork(t *testing.T) {
	gvisor := sandboxtest.GVisor(t)
	if !networktest.Alone(t) {
		return
	}
	networktest.New(t)
	testPolicy(t, oci.Runtimes{oci.GVisor: {Path: gvisor}}, func(n runtime.Network) runtime.Environment {
		env := networkEnvironment(n)
		env.Isolation = runtime.IsolationGVisor
		return env
	}, "timed out")
}

// testPolicy tests runners with a network of one runtime. inVain is the error that a program gets
// from its kernel if it queries another name server.
func testPolicy(t *testing.T, runtimes oci.Runtimes, with func(runtime.Network) runtime.Environment, inVain string) {
	b := networked(t)
	b.stop()
	b.config.Runtimes = runtimes
	b.open()
	b.run()
	open := b.begin(with(runtime.Network{Access: true}))
	none := b.begin(with(runtime.Network{}))

	t.Run("public addresses are reached", func(t *testing.T) {
		for to, as := range map[string]string{networktest.Public4: networktest.MachinePublic4, networktest.Public6: networktest.MachinePublic6} {
			b.tells(open, "tcp", to, networktest.Port, "you are "+as)
			b.tells(open, "udp", to, networktest.Port, "you are "+as)
		}
		b.tells(open, "tcp", "public.example", networktest.Port, "you are "+networktest.MachinePublic4)
		b.expect(open, "ls /sys/class/net 2>/dev/null; tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | sort", "eth0\nlo")
	})
	t.Run("denied addresses aren't", func(t *testing.T) {
		other := b.begin(with(runtime.Network{ExposedPorts: []int{networktest.Port}}))
		other4, other6, err := network.Pool{V4: network.DefaultPool4, V6: network.DefaultPool6}.Addresses(b.slotOf(other))
		if err != nil {
			t.Fatal(err)
		}
		for _, to := range []string{
			networktest.LAN4, networktest.LAN6, networktest.Metadata, "fd00:ec2::254", "10.7.7.7", "100.64.7.7", "2002:c0a8:4d02::1", "::ffff:" + networktest.LAN4,
			networktest.MachinePublic4, networktest.MachinePublic6, networktest.MachineLAN4, "10.213.0.1", other4.String(), other6.String(),
		} {
			b.tells(open, "tcp", to, networktest.Port, "refused")
		}
		b.expect(open, "getent ahostsv4 private.example || echo unknown", "unknown")
	})
	t.Run("none is none", func(t *testing.T) {
		b.expect(none, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; cat /etc/resolv.conf", "lo")
		b.tells(none, "udp", networktest.Public4, networktest.Port, "[Errno 101] Network is unreachable")
	})
	t.Run("programs can't change it", func(t *testing.T) {
		b.expect(open, "ip link set eth0 down 2>/dev/null || echo refused; ip addr add 10.213.0.9/32 dev eth0 2>/dev/null || echo refused; ip route add 1.1.1.1 dev lo 2>/dev/null || echo refused; nft flush ruleset 2>/dev/null || echo refused", "refused\nrefused\nrefused\nrefused")
		b.expect(open, `python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)' 2>&1 | tail -1 | cut -d: -f1`, "OSError") // the seccomp filter denies the family
	})
	t.Run("names narrow", func(t *testing.T) {
		id := b.begin(with(runtime.Network{Access: true, AllowNames: []string{"Public.example", "private.example"}}))
		b.tells(id, "tcp", networktest.Public4, networktest.Port, "refused")
		b.tells(id, "tcp", "public.example", networktest.Port, "you are "+networktest.MachinePublic4)
		b.tells(id, "tcp", networktest.Public4, networktest.Port, "you are "+networktest.MachinePublic4)
		b.tells(id, "tcp", networktest.Other4, networktest.Port, "refused")
		b.expect(id, "getent ahostsv4 another.example || echo unknown; getent ahostsv4 private.example || echo unknown", "unknown\nunknown")
		b.tells(id, "tcp", networktest.LAN4, networktest.Port, "refused")
		b.tells(id, "udp", "8.8.8.8", 53, inVain)
	})
	t.Run("networks narrow", func(t *testing.T) {
		id := b.begin(with(runtime.Network{Access: true, Allow: []string{networktest.Other4, "2a00:77::/64"}, BandwidthMbit: 10}))
		b.tells(id, "tcp", networktest.Other4, networktest.Port, "you are "+networktest.MachinePublic4)
		b.tells(id, "tcp", networktest.Public6, networktest.Port, "you are "+networktest.MachinePublic6)
		b.tells(id, "tcp", networktest.Public4, networktest.Port, "refused")
		b.expect(id, "getent ahostsv4 public.example || echo unknown", "unknown")
	})
	t.Run("ports", func(t *testing.T) {
		id := b.begin(with(runtime.Network{ExposedPorts: []int{8000, 9000}}))
		r, _ := b.runner(id)
		if len(r.Ports) != 2 || r.Ports[0].ExposedPort != 8000 || !strings.HasPrefix(r.Ports[0].Address, "127.0.0.1:20") {
			t.Fatalf("%+v", r.Ports)
		}
		b.tells(id, "udp", networktest.Public4, networktest.Port, "[Errno 101] Network is unreachable")
		b.greets(id, r.Ports[0].Address)
		if err := b.Remove(t.Context(), id); err != nil {
			t.Error(err)
		}
		if conn, err := net.Dial("tcp", r.Ports[0].Address); err == nil {
			_ = conn.Close()
			t.Error("its port is still open")
		}
	})
	t.Run("nothing is left of those that are removed", func(t *testing.T) {
		all, err := b.Runners(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			if err := b.Remove(t.Context(), r.ID); err != nil {
				t.Error(err)
			}
		}
		b.noNetworkLeft()
	})
}

// greet is a program that greets clients on port 8000.
const greet = `python3 -c '
import socket
s = socket.create_server(("", 8000))
conn, peer = s.accept(); conn.sendall(b"hello from inside"); print("from", peer[0])'`

// greets fails the test unless a runner greets a client with the machine's address.
func (b *bench) greets(id runtime.RunnerID, address string) {
	b.t.Helper()
	follow := b.launch(id, greet)
	var said []byte
	wait.For(b.t, "something is said at "+address, func() bool {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			b.t.Fatal(err)
		}
		defer conn.Close()
		said, _ = io.ReadAll(conn) // empty before it listens
		return len(said) > 0
	})
	if output, _ := follow(); string(said) != "hello from inside" || output != "from 10.213.0.1\n" {
		b.t.Errorf("at its port it says %q, and inside %q", said, output)
	}
}

// The next server takes over the runners that it finds, and removes those whose policy is no longer
// enforced.
func testNextServer(t *testing.T) {
	b := networked(t)
	b.runKept()
	env := networkEnvironment(runtime.Network{Access: true, AllowNames: []string{"public.example"}, ExposedPorts: []int{8000}})
	bared, kept := b.begin(env), b.begin(env) // so that the kept port isn't the first free one
	was, _ := b.runner(kept)
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	b.stop()
	conn.DelTable(&nftables.Table{Family: nftables.TableFamilyNetdev, Name: "rockpool-" + network.Name("/"+b.config.CgroupParent+"/"+string(bared))})
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	b.config.Keep = true
	b.reopened()
	if r, ok := b.runner(bared); ok {
		t.Errorf("a runner without its packet filter is %+v", r)
	}
	r, _ := b.runner(kept)
	if r.State != runtime.RunnerIdle || len(r.Ports) != 1 || r.Ports[0] != was.Ports[0] {
		t.Errorf("%+v, want the ports %+v", r, was.Ports)
	}
	b.tells(kept, "tcp", "public.example", networktest.Port, "you are "+networktest.MachinePublic4)
	b.greets(kept, r.Ports[0].Address)
	// It also removes one whose filter is removed later, as by another program's `flush`.
	flushed := b.begin(networkEnvironment(runtime.Network{Access: true}))
	b.network.Verify(t.Context())
	conn.DelTable(&nftables.Table{Family: nftables.TableFamilyNetdev, Name: "rockpool-" + network.Name("/"+b.config.CgroupParent+"/"+string(flushed))})
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	b.network.Verify(t.Context())
	if r := b.await(flushed, runtime.RunnerGone); r.State != runtime.RunnerGone || r.GoneReason != runtime.GoneStoppedOutside {
		t.Errorf("a runner without its packet filter goes on: %+v", r)
	}
	if r, _ := b.runner(kept); r.State != runtime.RunnerIdle {
		t.Errorf("one that is kept to its policy is %+v", r)
	}
	// While the state is unknown, none is ended.
	whole := b.host.Launcher
	b.host.Launcher = unable{whole}
	b.network.Verify(t.Context())
	b.host.Launcher = whole
	if r, _ := b.runner(kept); r.State != runtime.RunnerIdle {
		t.Errorf("while its filter couldn't be read it became %+v", r)
	}
	// If another program uses the port now, the runner isn't reported as reachable there.
	b.stop()
	taken, err := net.Listen("tcp", was.Ports[0].Address)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	b.reopened()
	if r, _ := b.runner(kept); r.State != runtime.RunnerIdle || len(r.Ports) != 0 {
		t.Errorf("with its port taken it is %+v", r)
	}
	// A server that can't answer DNS queries keeps running runners, and still verifies their
	// filters.
	b.stop()
	names, err := net.ListenPacket("udp4", "0.0.0.0:53")
	if err != nil {
		t.Fatal(err)
	}
	b.reopened()
	if err := names.Close(); err != nil {
		t.Error(err)
	}
	if b.network.Supported(runtime.Network{ExposedPorts: []int{80}}) == nil {
		t.Fatal("the name server's port isn't missed")
	}
	if r, _ := b.runner(kept); r.State != runtime.RunnerIdle || len(r.Ports) != 0 {
		t.Errorf("without answers for names it is %+v", r)
	}
	b.network.Verify(t.Context())
	b.tells(kept, "tcp", networktest.Public4, networktest.Port, "you are "+networktest.MachinePublic4) // its lease continues
	// A server that no longer offers a network keeps none of them.
	b.stop()
	b.config.Network, b.config.Keep = nil, false
	b.open()
	b.run()
	if r, ok := b.runner(kept); ok {
		t.Errorf("a runner whose network can't be verified is %+v", r)
	}
	b.noNetworkLeft()
}

// Another program's flush of all rules immediately ends all runners with a network; so does an
// additional rule.
func testFlush(t *testing.T) {
	b := networked(t)
	b.stop()
	b.config.Network.VerifyEvery = time.Hour // only the kernel reports changes
	b.open()
	b.run()
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	env := networkEnvironment(runtime.Network{Access: true})
	none, opened, kept := b.begin(hostEnvironment()), b.begin(env), b.begin(env)
	table := &nftables.Table{Family: nftables.TableFamilyNetdev, Name: "rockpool-" + network.Name("/"+b.config.CgroupParent+"/"+string(opened))}
	conn.InsertRule(&nftables.Rule{Table: table, Chain: &nftables.Chain{Name: "from", Table: table}, Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}})
	gone := func(ids ...runtime.RunnerID) {
		t.Helper()
		if err := conn.Flush(); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if r := b.await(id, runtime.RunnerGone); r.State != runtime.RunnerGone || r.GoneReason != runtime.GoneStoppedOutside {
				t.Errorf("it goes on: %+v", r)
			}
		}
	}
	gone(opened)
	b.tells(kept, "tcp", networktest.Public4, networktest.Port, "you are "+networktest.MachinePublic4)
	another := b.begin(env)
	conn.FlushRuleset()
	gone(kept, another)
	if r, _ := b.runner(none); r.State != runtime.RunnerIdle {
		t.Errorf("one without a network is %+v", r)
	}
	b.tells(b.begin(env), "tcp", networktest.Public4, networktest.Port, "you are "+networktest.MachinePublic4) // new ones can be made
}

// An unable launcher's helper can't read filters.
type unable struct{ host.Launcher }

func (unable) Do(context.Context, string, helper.Request) error {
	return &launch.RefusalError{Line: "fork: resource temporarily unavailable"}
}

// Everything that a killed create has made is removed with its runner.
func testKilledCreates(t *testing.T) {
	b := networked(t)
	tables := 0
	b.killCreates(networkEnvironment(runtime.Network{Access: true, ExposedPorts: []int{8000}}), func(stage string) {
		all := len(ownTables(t))
		if fenced := stage == "checked" || stage == "running"; fenced && all != tables+1 {
			t.Errorf("killed at %q it left %d tables after %d", stage, all, tables)
		}
		tables = all
	})
	b.stop()
	b.open() // the next server finds the directories
	b.run()
	b.noNetworkLeft()
}

func testRefused(t *testing.T) {
	b := networked(t).run()
	put := func(n runtime.Network, field, says string) {
		t.Helper()
		env := networkEnvironment(n)
		err := b.PutEnvironment(t.Context(), env)
		if refusal.Want(t, err, runtime.CodeInvalidInput, field, n); !strings.Contains(runtime.MessageOf(err), says) {
			t.Errorf("%+v: got %v, want %q", n, err, says)
		}
	}
	put(runtime.Network{Access: true, Allow: []string{"20.0.0.0/8", "192.168.0.0/24"}}, "network.allow.1", "--network-permit")
	put(runtime.Network{Access: true, Allow: []string{"10.213.0.3"}}, "network.allow.0", "no runner can reach")
	put(runtime.Network{Access: true, BandwidthMbit: 1001}, "network.bandwidthMbit", "1000")
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	put(runtime.Network{Access: true}, "network.access", "net.ipv4.ip_forward")
	helpers := b.config.Network.Offer
	b.stop()
	b.config.Network.Offer.Bandwidth = 2000
	b.open()
	b.host.Direct.Config.Network = &helpers // as if the helper offered less
	b.run()
	id := runtime.NewRunnerID()
	if err := b.Start(t.Context(), id, networkEnvironment(runtime.Network{ExposedPorts: []int{80}, BandwidthMbit: 1500}), runtime.PriorityRefill); err != nil {
		t.Fatal(err)
	}
	if r := b.await(id, runtime.RunnerIdle); r.State != runtime.RunnerGone || !strings.Contains(r.Message, "1000") {
		t.Errorf("a runner with too much bandwidth is %+v, want GONE because of the limit of 1000", r)
	}
	b.stop()
	b.config.Network = nil
	b.open()
	b.run()
	put(runtime.Network{Access: true}, "network.access", "--network")
	put(runtime.Network{ExposedPorts: []int{80}}, "network.exposedPorts", "--network")
}
