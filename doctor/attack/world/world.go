// Package world simulates the networks around a machine in an empty network namespace, for attacks
// with network access. Nothing that they send leaves the namespace. Every simulated address
// responds at [Port], so a request without a response was blocked.
package world

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/proc"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// Port is the port at which every address responds. Addresses outside of the machine also respond
// at the ports 53 and 853.
const Port = 7777

// Addresses outside of the machine.
const (
	Public4  = "20.0.0.2"
	Other4   = "20.0.0.3"
	Public6  = "2a00:77::2"
	LAN4     = "192.168.77.2"
	LAN6     = "fd77::2"
	Metadata = "169.254.169.254"
	Resolver = "8.8.8.8"
)

// Addresses of the machine itself.
const (
	Machine4    = "20.0.0.1"
	Machine6    = "2a00:77::1"
	MachineLAN4 = "192.168.77.1"
	MachineLAN6 = "fd77::1"
	MachineLink = "169.254.1.1"
)

// More addresses outside that no runner may reach: private ones, metadata services of clouds, and
// addresses that embed an IPv4 address.
var (
	Private  = []string{LAN4, LAN6, "10.7.7.7", "100.64.7.7", "172.16.7.7", "198.18.7.7"}
	Clouds   = []string{Metadata, "fd00:ec2::254", "168.63.129.16"}
	Carriers = []string{"2002:c0a8:4d02::1", "64:ff9b::c0a8:4d02", "2001::7"}
)

// A World is the simulated network, from New to Close.
type World struct {
	Names string // address and port of the name server for [names]

	outside  chan func() // functions to call in the network namespace outside of the machine
	ended    chan struct{}
	closers  []func() error
	parts    sync.WaitGroup
	received sync.Map // texts of received datagrams, and "asked NAME" for queried names
}

// Received reports whether a datagram with this text arrived outside or at the machine, or ("asked
// x.example") whether a name was queried.
func (w *World) Received(text string) bool {
	_, found := w.received.Load(text)
	return found
}

// New creates the simulated network in the network namespace of this process, which must be new and
// empty. It needs root and the program ip of iproute2. The caller must call Close.
func New(ctx context.Context) (_ *World, err error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, i := range all {
		if i.Flags&net.FlagUp != 0 && i.Flags&net.FlagLoopback == 0 {
			return nil, fmt.Errorf("this network namespace is in use: it has the interface %s", i.Name)
		}
	}
	w := &World{outside: make(chan func()), ended: make(chan struct{})}
	thread := make(chan int)
	proc.StartThread(func() bool { return w.runOutside(thread) })
	tid := <-thread
	defer func() {
		if err != nil {
			_ = w.Close()
		}
	}()
	if tid == 0 {
		return nil, errors.New("a network namespace can't be created")
	}
	if err := w.link(ctx, tid); err != nil {
		return nil, err
	}
	if err := w.serve(); err != nil {
		return nil, err
	}
	return w, w.check(ctx)
}

// runOutside runs functions on a thread in the network namespace outside of the machine. The
// namespace ends with the thread and its listeners.
func (w *World) runOutside(thread chan<- int) (unchanged bool) {
	defer close(w.ended)
	if unix.Unshare(unix.CLONE_NEWNET) != nil {
		thread <- 0
		return true
	}
	thread <- unix.Gettid()
	for f := range w.outside {
		f()
	}
	return false
}

// do calls a function in the network namespace outside of the machine.
func (w *World) do(f func() error) error {
	done := make(chan error)
	select {
	case w.outside <- func() { done <- f() }:
		return <-done
	case <-w.ended:
		return errors.New("the simulated network has ended")
	}
}

// Close ends the simulated network and its listeners.
func (w *World) Close() error {
	var errs []error
	for _, closer := range w.closers {
		errs = append(errs, closer())
	}
	w.parts.Wait()
	close(w.outside)
	<-w.ended
	return errors.Join(errs...)
}

// link creates the machine's link to the outside.
func (w *World) link(ctx context.Context, tid int) error {
	for _, setting := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		if err := os.WriteFile("/proc/sys/net/"+setting, []byte("1"), 0); err != nil {
			return err
		}
	}
	const machine, around = "out0", "out1"
	inside := []string{
		"link set lo up",
		fmt.Sprintf("link add %s type veth peer name %s netns %d", machine, around, tid),
	}
	inside = append(inside, addresses(machine, Machine4+"/24", Machine6+"/64", MachineLAN4+"/24", MachineLAN6+"/64", MachineLink+"/16")...)
	if err := batch(ctx, inside); err != nil {
		return err
	}
	w.closers = append(w.closers, func() error { // otherwise the kernel removes it only some time after the namespace
		return batch(context.WithoutCancel(ctx), []string{"link delete " + machine})
	})
	outside := []string{"link set lo up"}
	for _, all := range [][]string{{Public4 + "/24", Other4 + "/24", Public6 + "/64", LAN4 + "/24", LAN6 + "/64", Metadata + "/16", Resolver}, Private[2:], Clouds[1:], Carriers} {
		outside = append(outside, addresses(around, all...)...)
	}
	if err := w.do(func() error { return batch(ctx, outside) }); err != nil {
		return err
	}
	return batch(ctx, []string{"route add default via " + Public4, "route add default via " + Public6})
}

// addresses returns the lines for batch that give a link its addresses and bring it up. IPv6
// addresses are usable immediately: they skip duplicate address detection.
func addresses(link string, all ...string) []string {
	lines := []string{}
	for _, a := range all {
		line := fmt.Sprintf("addr add %s dev %s", a, link)
		if strings.Contains(a, ":") {
			line += " nodad"
		}
		lines = append(lines, line)
	}
	return append(lines, "link set "+link+" up")
}

func batch(ctx context.Context, lines []string) error {
	cmd := exec.CommandContext(ctx, "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); errors.Is(err, exec.ErrNotFound) {
		return errors.New("the program ip is missing: install iproute2")
	} else if err != nil {
		return fmt.Errorf("ip: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// check returns an error unless the machine itself reaches every address. Otherwise an unreachable
// address wouldn't show that an attack was stopped.
func (w *World) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	all := []string{Public4, Other4, Public6, Resolver, Machine4, Machine6, MachineLAN4, MachineLAN6, MachineLink}
	for _, more := range [][]string{Private, Clouds, Carriers} {
		all = append(all, more...)
	}
	for _, to := range all {
		for { // until the link has resolved its neighbour
			err := request(ctx, to)
			if err == nil {
				break
			}
			if backoff.Sleep(ctx, 10*time.Millisecond) != nil {
				return fmt.Errorf("the machine itself can't reach %s: %w", to, err)
			}
		}
	}
	return nil
}

// request sends a greeting to the simulated network at an address and waits for its response.
func request(ctx context.Context, to string) error {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", net.JoinHostPort(to, strconv.Itoa(Port)))
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("hello")); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 16))
	return err
}
