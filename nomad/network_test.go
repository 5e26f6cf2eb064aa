package nomad

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/nomadtest"
	"github.com/rockpool/rockpool/test/wait"
)

// alone names the variable of the test's second process. It has its own networks and mounts, so
// that the bridges, rules and addresses of CNI's plugins are invisible to others and disappear with
// it.
const alone = "ROCKPOOL_TEST_ALONE"

// The networks in docs/guides/nomad.md work as described: ports are reachable from outside, and a
// runner reaches neither private networks, nor its node, nor another runner.
func TestNetworks(t *testing.T) {
	need.Nomad(t)
	if os.Getenv(alone) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNetworks$", "-test.timeout=5m")
		cmd.Env = append(os.Environ(), alone+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	guide, err := os.ReadFile("../docs/guides/nomad.md")
	if err != nil {
		t.Fatal(err)
	}
	_, chapter, _ := strings.Cut(string(guide), "## Networks")
	makeNetworks(t)
	script(t, "", block(t, chapter, "```sh"))
	node := httptest.NewUnstartedServer(http.NotFoundHandler())
	if node.Listener, err = net.Listen("tcp", "0.0.0.0:0"); err != nil {
		t.Fatal(err)
	}
	node.Start()
	defer node.Close()
	nodePort := node.Listener.Addr().(*net.TCPAddr).Port

	agents = newAgentServer() // in these networks
	n := nomadtest.Start(t, nomadtest.Options{Drivers: []string{"exec", "docker"}, Programs: []string{"busybox"}, Networks: map[string]string{
		"runners.conflist": block(t, chapter, "```json"),
		"none.conflist":    `{"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "loopback"}]}`,
	}})
	t.Run("bridge", func(t *testing.T) {
		b := networkBed(t, n, job.Exec, "bridge")
		b.servesAtItsPort(b.claimed())
	})
	t.Run("bridge of containers", func(t *testing.T) {
		b := networkBed(t, n, job.Docker, "bridge")
		id := b.claimed()
		b.servesAtItsPort(id)
		wait.For(t, "its network is found", func() bool {
			b.runners.mu.Lock()
			defer b.runners.mu.Unlock()
			return b.runners.entries[id].network == networkThere
		})
	})
	t.Run("cni", func(t *testing.T) { networkBed(t, n, job.Docker, "cni/runners").reachesOnlyOutside(nodePort) })
	t.Run("none", func(t *testing.T) {
		b := networkBed(t, n, job.Exec, "bridge")
		b.env.Revision, b.env.RunnerRevision, b.env.Network = 2, 2, runtime.Network{}
		if err := b.PutEnvironment(t.Context(), b.env); err != nil {
			t.Fatal(err)
		}
		if got := b.run(b.idle(), "busybox", "sh", "-c", "busybox ls /sys/class/net 2>/dev/null || busybox ip -o link | busybox cut -d: -f2"); strings.TrimSpace(got) != "lo" {
			t.Errorf("without network access it has %q", got)
		}
	})
}

// The Docker daemon of the tests has no bridge.
func TestMissingNetworksAreReported(t *testing.T) {
	n := container.Nomad(t)
	b := bed{Cluster: start(t, config(t, n, job.Docker)), t: t, n: n, env: rawEnvironment()}
	b.env.ID, b.env.Revision, b.env.RunnerRevision = "a", 1, 1
	b.env.Image, b.env.Isolation, b.env.Network.Access = nomadtest.Image, runtime.IsolationNamespaces, true
	if err := b.PutEnvironment(t.Context(), b.env); err != nil {
		t.Fatal(err)
	}
	id := b.idle()
	says := func() bool {
		return strings.Contains(problem(t, b.Cluster, "network of environment a"), "--nomad-network-mode")
	}
	wait.For(t, "it is reported", says)
	if err := b.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	b.refresher.soon()
	wait.For(t, "the problem is gone with the runner", func() bool { return !says() })
}

// makeNetworks creates a public and a private network, with a server that answers on both.
func makeNetworks(t *testing.T) {
	t.Helper()
	for _, dir := range []string{"/run/netns", "/var/lib/cni"} { // where Nomad and the plugins keep what they made
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
	}
	outside := exec.CommandContext(t.Context(), "busybox", "httpd", "-f", "-p", "80", "-h", t.TempDir())
	outside.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if err := outside.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = outside.Process.Kill()
		_ = outside.Wait()
	})
	script(t, strconv.Itoa(outside.Process.Pid), `
		ip link set lo up
		sysctl -qw net.ipv4.ip_forward=1
		ip link add out0 type veth peer name out1
		ip link set out1 netns "$1"
		ip addr add 203.0.113.1/24 dev out0; ip addr add 192.168.77.1/24 dev out0; ip link set out0 up
		nsenter -t "$1" -n sh -ec 'ip addr add 203.0.113.2/24 dev out1; ip addr add 192.168.77.2/24 dev out1; ip link set out1 up'`)
}

// networkBed is a bed whose runners expose a port.
func networkBed(t *testing.T, n *nomadtest.Nomad, driver job.Driver, mode string) bed {
	t.Helper()
	c := config(t, n, driver)
	c.Jobs.NetworkMode, c.Jobs.NoNetworkMode = mode, "cni/none"
	b := bed{Cluster: start(t, c), t: t, n: n, env: rawEnvironment()}
	b.env.ID, b.env.Revision, b.env.RunnerRevision, b.env.Isolation = "a", 1, 1, runtime.IsolationNamespaces
	if driver == job.Docker {
		b.env.Image = nomadtest.Image
	}
	b.env.Network = runtime.Network{Access: true, ExposedPorts: []int{8000}}
	if err := b.PutEnvironment(t.Context(), b.env); err != nil {
		t.Fatal(err)
	}
	return b
}

// reachesOnlyOutside checks what a runner can reach, and what it can't.
func (b bed) reachesOnlyOutside(nodePort int) {
	b.t.Helper()
	id, other := b.claimed(), b.claimed()
	b.servesAtItsPort(id)
	b.servesAtItsPort(other)
	neighbour := strings.TrimSpace(b.run(other, "busybox", "sh", "-c", "busybox ip -4 -o addr show eth0 | busybox sed 's/.*inet //; s:/.*::'"))
	done := b.listens(other)
	limits := map[bool]string{true: "100 busybox nc -w 100", false: "5 busybox nc -w 2"}
	for address, reached := range map[string]bool{
		"203.0.113.2:80": true, "192.168.77.2:80": false, neighbour + ":8000": false,
		fmt.Sprintf("172.30.0.1:%d", nodePort): false, fmt.Sprintf("203.0.113.1:%d", nodePort): false,
	} {
		said := b.run(id, "busybox", "sh", "-c", "busybox timeout "+limits[reached]+" "+strings.Replace(address, ":", " ", 1)+" </dev/null && echo reached")
		if (said == "reached\n") != reached {
			b.t.Errorf("%s: %q, want it reached: %t", address, said, reached)
		}
	}
	_, _ = b.dialPort(other) // lets it end
	<-done
}

// servesAtItsPort starts a server in a runner, and connects to the address in its claim.
func (b bed) servesAtItsPort(id runtime.RunnerID) {
	b.t.Helper()
	done := b.listens(id)
	said, err := b.dialPort(id)
	if err != nil || said != "hello\n" {
		b.t.Errorf("at its port it says %q, %v", said, err)
	}
	<-done
}

// listens starts a server in a runner that greets the first client.
func (b bed) listens(id runtime.RunnerID) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.run(id, "busybox", "sh", "-c", "echo hello | busybox timeout 200 busybox nc -l -p 8000")
	}()
	return done
}

// dialPort returns a runner's greeting at the address in its claim.
func (b bed) dialPort(id runtime.RunnerID) (string, error) {
	b.t.Helper()
	r, _ := b.find(id)
	if r.State != runtime.RunnerClaimed || len(r.Ports) != 1 || r.Ports[0].ExposedPort != 8000 {
		b.t.Fatalf("%+v", r)
	}
	var conn net.Conn
	wait.For(b.t, "it listens", func() (ok bool) {
		var d net.Dialer
		var err error
		conn, err = d.DialContext(b.t.Context(), "tcp", r.Ports[0].Address)
		return err == nil
	})
	defer conn.Close()
	said, err := io.ReadAll(conn)
	return string(said), err
}

// block returns the first block of a text that begins with begin.
func block(t *testing.T, text, begin string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, begin)
	_, rest, _ = strings.Cut(rest, "\n") // what follows the language says how test/pages treats the block
	inside, _, _ := strings.Cut(rest, "```")
	if !found {
		t.Fatal("docs/guides/nomad.md has no such block")
	}
	return inside
}

func script(t *testing.T, argument, text string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", text, "sh", argument)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, text, out)
	}
}
