// Package world makes a machine with networks around it, in an empty network
// namespace: what attackers with network access are shown. Nothing that they send
// leaves it. All that listens at [Port] says so to who asks, so that what isn't
// answered was held off.
package world

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	goruntime "runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Port is where everybody answers; outside they do at the ports for names too.
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

// Further are more addresses outside that no runner may reach: private ones,
// clouds' metadata, and such as carry an address of IPv4.
var (
	Private  = []string{LAN4, LAN6, "10.7.7.7", "100.64.7.7", "172.16.7.7", "198.18.7.7"}
	Clouds   = []string{Metadata, "fd00:ec2::254", "168.63.129.16"}
	Carriers = []string{"2002:c0a8:4d02::1", "64:ff9b::c0a8:4d02", "2001::7"}
)

// A World is there from New until Close.
type World struct {
	Names string // address and port of the name server, which [names] are asked of

	outside chan func() // to be called in the network namespace around the machine
	ended   chan struct{}
	closers []func() error
	parts   sync.WaitGroup
	came    sync.Map // texts of datagrams, and "asked " with names
}

// Came reports whether a datagram of this text came to anybody outside, or to
// the machine, or whether a name was asked for ("asked x.example").
func (w *World) Came(text string) bool {
	_, came := w.came.Load(text)
	return came
}

// New makes the world in the network namespace of this process, which must have
// been made for it. It needs root, and the program ip of iproute2.
func New(ctx context.Context) (_ *World, err error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, i := range all {
		if i.Flags&net.FlagUp != 0 && i.Flags&net.FlagLoopback == 0 {
			return nil, fmt.Errorf("this network namespace is somebody's: it has the interface %s", i.Name)
		}
	}
	w := &World{outside: make(chan func()), ended: make(chan struct{})}
	thread := make(chan int)
	go w.besides(thread)
	tid := <-thread
	defer func() {
		if err != nil {
			_ = w.Close()
		}
	}()
	if tid == 0 {
		return nil, errors.New("no network namespace can be made")
	}
	if err := w.link(ctx, tid); err != nil {
		return nil, err
	}
	if err := w.serve(); err != nil {
		return nil, err
	}
	return w, w.shows(ctx)
}

// besides is the thread in the network namespace around the machine. The
// namespace ends with it, and with what listens there.
func (w *World) besides(thread chan<- int) {
	defer close(w.ended)
	goruntime.LockOSThread() // and never unlocked: nobody else may find itself there
	if unix.Unshare(unix.CLONE_NEWNET) != nil {
		thread <- 0
		return
	}
	thread <- unix.Gettid()
	for f := range w.outside {
		f()
	}
}

// do calls a function outside.
func (w *World) do(f func() error) error {
	done := make(chan error)
	select {
	case w.outside <- func() { done <- f() }:
		return <-done
	case <-w.ended:
		return errors.New("the world has ended")
	}
}

// Close ends it, and all that listens in it.
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

// link makes the machine's one link to the outside.
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
	w.closers = append(w.closers, func() error { // by itself it goes some time after the namespace
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

// batch has ip do all lines.
func batch(ctx context.Context, lines []string) error {
	cmd := exec.CommandContext(ctx, "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); errors.Is(err, exec.ErrNotFound) {
		return errors.New("the program ip isn't there: install iproute2")
	} else if err != nil {
		return fmt.Errorf("ip: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// shows returns an error unless the machine is answered by everybody: what an
// attacker doesn't reach would show nothing.
func (w *World) shows(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	all := []string{Public4, Other4, Public6, Resolver, Machine4, Machine6, MachineLAN4, MachineLAN6, MachineLink}
	for _, more := range [][]string{Private, Clouds, Carriers} {
		all = append(all, more...)
	}
	for _, to := range all {
		for { // until the link knows its neighbour
			err := ask(ctx, to)
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("the machine itself doesn't reach %s: %w", to, err)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	return nil
}

func ask(ctx context.Context, to string) error {
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
