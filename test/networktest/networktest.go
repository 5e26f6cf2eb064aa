// Package networktest gives a test a machine with networks around it. All of them are network
// namespaces of the test, so that nothing leaves the real machine or changes it.
package networktest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/proc"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

// alone is the variable that marks a test's second process.
const alone = "ROCKPOOL_TEST_ALONE"

// Alone runs the test again in a process with its own network namespace. It returns true in that
// process, and false in the first process, where the test is done.
func Alone(t *testing.T) bool {
	t.Helper()
	need.Sandboxes(t)
	if os.Getenv(alone) == t.Name() {
		return true
	}
	timeout := 5 * time.Minute
	if end, ok := t.Deadline(); ok {
		timeout = max(timeout, time.Until(end)-10*time.Second)
	}
	args := []string{"-test.run=^" + t.Name() + "$", "-test.timeout=" + timeout.String(), "-test.count=1"}
	if testing.Verbose() {
		args = append(args, "-test.v")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), alone+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if testing.Verbose() {
		t.Logf("%s", out)
	}
	return false
}

// Addresses in the networks around the machine. A server answers at [Port] of each.
const (
	Public4  = "20.0.0.2"
	Other4   = "20.0.0.3"
	Public6  = "2a00:77::2"
	Other6   = "2a00:78::3"
	LAN4     = "192.168.77.2"
	LAN6     = "fd77::2"
	Metadata = "169.254.169.254"
	Port     = 7777
)

// Addresses of the machine itself.
const (
	MachinePublic4 = "20.0.0.1"
	MachinePublic6 = "2a00:77::1"
	MachineLAN4    = "192.168.77.1"
)

// A World is a machine, represented by the test's process, and the networks around it.
type World struct {
	Outside  *Host
	Received func(text string) bool // whether a datagram with this text arrived outside
}

// New makes the world. Every server at [Port] answers with its address.
func New(t testing.TB) *World {
	t.Helper()
	w := &World{Outside: NewHost(t)}
	check(t, linkUp("lo"))
	for _, sysctl := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		check(t, os.WriteFile("/proc/sys/net/"+sysctl, []byte("1"), 0))
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "out0"
	check(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "out1", PeerNamespace: netlink.NsFd(w.Outside.ns)}))
	address(t, "out0", MachinePublic4+"/24", MachineLAN4+"/24", MachinePublic6+"/64", "fd77::1/64", "169.254.1.1/16")
	w.Outside.Do(func() {
		address(t, "out1", Public4+"/24", Other4+"/24", LAN4+"/24", Public6+"/64", Other6+"/64", LAN6+"/64", Metadata+"/16",
			"8.8.8.8/32", "2606:4700::1/128", "100.64.7.7/32", "172.16.7.7/32", "10.7.7.7/32", "198.18.7.7/32", "168.63.129.16/32", "192.0.2.7/32", "224.0.0.0/4",
			"2002:c0a8:4d02::1/128", "64:ff9b::c0a8:4d02/128", "2001::7/128", "fd00:ec2::254/128")
	})
	// Hosts without a network of their own are outside too.
	out, err := netlink.LinkByName("out0")
	check(t, err)
	for _, to := range []string{Public4, Public6} {
		check(t, netlink.RouteAdd(&netlink.Route{LinkIndex: out.Attrs().Index, Gw: net.ParseIP(to), Dst: everywhere(to)}))
	}
	w.Received = w.Outside.Serve(Port)
	NewServer(t, Port)
	for _, to := range []string{Public4, Public6, LAN4} {
		wait.For(t, "the links know their neighbours", func() bool {
			_, err := Ask("tcp", to, Port)
			return err == nil
		})
	}
	return w
}

func everywhere(like string) *net.IPNet {
	if netip.MustParseAddr(like).Is4() {
		return &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	}
	return &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func linkUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

func address(t testing.TB, name string, all ...string) {
	t.Helper()
	link, err := netlink.LinkByName(name)
	check(t, err)
	for _, text := range all {
		if strings.HasPrefix(text, "224.") {
			continue
		}
		addr, err := netlink.ParseAddr(text)
		check(t, err)
		if addr.IP.To4() == nil {
			addr.Flags = unix.IFA_F_NODAD
		}
		check(t, netlink.AddrAdd(link, addr))
	}
	check(t, netlink.LinkSetUp(link))
}

// A Host is a network namespace. A sleeping process keeps it alive.
type Host struct {
	t   testing.TB
	PID int
	ns  netns.NsHandle
}

// NewHost makes a host without links.
func NewHost(t testing.TB) *Host {
	t.Helper()
	cmd := exec.Command("sleep", "3600") // longer than tests may take
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return HostOf(t, cmd.Process.Pid)
}

// HostOf returns the network namespace of a process.
func HostOf(t testing.TB, pid int) *Host {
	t.Helper()
	ns, err := netns.GetFromPid(pid)
	check(t, err)
	t.Cleanup(func() { _ = ns.Close() })
	h := &Host{t: t, PID: pid, ns: ns}
	h.Do(func() { check(t, linkUp("lo")) })
	return h
}

// Do calls a function in the namespace. Sockets that it opens stay in the namespace. All calls run
// on the same processor, so that the kernel handles their packets in order.
func (h *Host) Do(f func()) {
	h.t.Helper()
	finished := false
	proc.OnThread(func() {
		if err := errors.Join(netns.Set(h.ns), pin()); err != nil {
			h.t.Error(err)
			return
		}
		f()
		finished = true
	})
	if !finished { // it failed the test, maybe by Fatal
		h.t.FailNow()
	}
}

// pin keeps this thread on the first processor that it may use.
func pin() error {
	var may, first unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return err
	}
	cpu := 0
	for !may.IsSet(cpu) {
		cpu++
	}
	first.Set(cpu)
	return unix.SchedSetaffinity(0, &first)
}

// Serve starts a server on the host at a port.
func (h *Host) Serve(port int) (received func(text string) bool) {
	h.Do(func() { received = NewServer(h.t, port) })
	return received
}

// Ask returns the answer of a server, or why there is none. It waits for either. Use [Host.Send]
// for probes that nothing answers.
func (h *Host) Ask(protocol, to string, port int) (said string, err error) {
	h.Do(func() { said, err = Ask(protocol, to, port) })
	return said, err
}

// silence is the time to wait for a connection that is neither accepted nor refused.
const silence = 2 * time.Second

// Silent reports whether an address doesn't answer.
func (h *Host) Silent(to string) (silent bool) {
	h.Do(func() {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(to, strconv.Itoa(Port)), silence)
		if err == nil {
			_ = conn.Close()
		}
		silent = errors.Is(err, os.ErrDeadlineExceeded)
	})
	return silent
}

// Refuses reports whether the kernel can refuse packets of a link, which needs
// CONFIG_NFT_REJECT_NETDEV. The machine's own tables don't change, not even for a moment.
func Refuses(t testing.TB) bool {
	t.Helper()
	conn, err := nftables.New()
	check(t, err)
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyNetdev, Name: "refuses"})
	chain := conn.AddChain(&nftables.Chain{Table: table, Name: "refuses"})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH}}})
	conn.DelTable(table)
	err = conn.Flush()
	if err != nil && !errors.Is(err, unix.ENOENT) {
		t.Fatal(err)
	}
	return err == nil
}

// Ask is [Host.Ask] from the test's own namespace.
func Ask(protocol, to string, port int) (string, error) {
	conn, err := net.DialTimeout(protocol, net.JoinHostPort(to, strconv.Itoa(port)), wait.Limit)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(wait.Limit))
	if _, err := conn.Write([]byte("hello")); err != nil {
		return "", err
	}
	answer := make([]byte, 256)
	n, err := conn.Read(answer)
	return string(answer[:n]), err
}

// NewServer answers TCP and UDP at a port of all addresses with the client's address. Connections
// can do more; see Stream.
func NewServer(t testing.TB, port int) (received func(text string) bool) {
	t.Helper()
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{Port: port})
	check(t, err)
	udp, err := net.ListenUDP("udp", &net.UDPAddr{Port: port})
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		_, _ = tcp.Close(), udp.Close()
		parts.Wait()
	})
	parts.Go(func() {
		for {
			conn, err := tcp.Accept()
			if err != nil {
				return
			}
			parts.Go(func() {
				defer conn.Close()
				defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
				first := make([]byte, 5)
				if _, err := io.ReadFull(conn, first); err != nil {
					return
				}
				switch string(first) {
				case "hello":
					_, _ = fmt.Fprintf(conn, "you are %s", host(conn.RemoteAddr()))
				case "drain":
					n, _ := io.Copy(io.Discard, conn)
					_, _ = fmt.Fprint(conn, n)
				case "flood":
					_, _ = io.CopyN(conn, zeros{}, 1<<40)
				}
			})
		}
	})
	var came sync.Map
	parts.Go(func() {
		datagram := make([]byte, 2048)
		for {
			n, from, err := udp.ReadFrom(datagram)
			came.Store(string(datagram[:n]), true)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = udp.WriteTo([]byte("you are "+host(from)), from)
			}
		}
	})
	return func(text string) bool {
		_, ok := came.Load(text)
		return ok
	}
}

// Stream returns the time to send this many bytes to an address, or to receive them.
func (h *Host) Stream(to string, bytes int64, send bool) (took time.Duration, err error) {
	h.Do(func() {
		var conn net.Conn
		if conn, err = net.Dial("tcp", net.JoinHostPort(to, strconv.Itoa(Port))); err != nil {
			return
		}
		defer conn.Close()
		began := time.Now()
		if !send {
			_, _ = conn.Write([]byte("flood"))
			_, err = io.CopyN(io.Discard, conn, bytes)
		} else {
			_, _ = conn.Write([]byte("drain"))
			_, _ = io.CopyN(conn, zeros{}, bytes)
			_ = conn.(*net.TCPConn).CloseWrite()
			_, err = io.ReadAll(conn) // everything has arrived
		}
		took = time.Since(began)
	})
	return took, err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func host(a net.Addr) string {
	ap := netip.MustParseAddrPort(a.String())
	return ap.Addr().Unmap().String()
}
