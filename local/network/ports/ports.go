// Package ports maps runners' TCP ports to ports of the machine: it forwards connections to them
// over the runner's link. To runners, the machine is the client.
package ports

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/rockpool/rockpool/local/network"
)

// Bounds of mapped connections.
const (
	maxConnections = 256  // concurrent connections of one runner
	maxOfAll       = 4096 // of all runners, besides one of each; each takes two descriptors of the server
	dialWithin     = 10 * time.Second
)

// A Mapper maps runners' ports to the ports First to Last of the address At. Its methods are safe
// for concurrent use.
type Mapper struct {
	At          netip.Addr
	First, Last int

	mu     sync.Mutex // guards the fields below
	next   int        // offset of the next port to try
	opened map[string]*runner
	slots  *network.Slots // for connections
}

// A Mapping is one port of a runner, and the machine's address that it is reached at.
type Mapping struct {
	Port int
	At   netip.AddrPort
}

// A runner is a runner's mapped ports.
type runner struct {
	cancel    context.CancelFunc
	listeners []net.Listener
	parts     sync.WaitGroup // goroutines of listeners and connections; close waits for them
	slots     *network.Share // for connections
}

// Open maps a runner's ports. A mapping with an address gets that one, else a free port. It returns
// all mappings. After an error none is mapped. The target address is to.
func (m *Mapper) Open(id string, to netip.Addr, wanted []Mapping) ([]Mapping, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.opened[id] != nil {
		return nil, errors.New("its ports are mapped already")
	}
	ctx, cancel := context.WithCancel(context.Background())
	if m.slots == nil {
		m.slots = network.NewSlots(maxOfAll, maxConnections)
	}
	r := &runner{cancel: cancel, slots: m.slots.Share()}
	mapped := slices.Clone(wanted)
	for i := range mapped {
		listener, err := m.listen(mapped[i].At)
		if err != nil {
			r.close()
			return nil, fmt.Errorf("map port %d: %w", mapped[i].Port, err)
		}
		// listen may have chosen the port.
		mapped[i].At = netip.MustParseAddrPort(listener.Addr().String())
		r.listeners = append(r.listeners, listener)
		target := netip.AddrPortFrom(to, uint16(mapped[i].Port))
		r.parts.Go(func() { r.serve(ctx, listener, target) })
	}
	if m.opened == nil {
		m.opened = map[string]*runner{}
	}
	m.opened[id] = r
	return mapped, nil
}

// listen listens on an address, or on a free port if at is invalid. The caller holds mu.
func (m *Mapper) listen(at netip.AddrPort) (net.Listener, error) {
	var config net.ListenConfig
	if at.IsValid() {
		return config.Listen(context.Background(), "tcp", at.String())
	}
	for range m.Last - m.First + 1 {
		port := m.First + m.next
		m.next = (m.next + 1) % (m.Last - m.First + 1)
		listener, err := config.Listen(context.Background(), "tcp", netip.AddrPortFrom(m.At, uint16(port)).String())
		if !errors.Is(err, syscall.EADDRINUSE) {
			return listener, err
		}
	}
	return nil, fmt.Errorf("all ports from %d to %d are in use: widen --network-ports", m.First, m.Last)
}

// Close ends a runner's mappings and connections, if any, and waits for their goroutines.
func (m *Mapper) Close(id string) {
	m.mu.Lock()
	r := m.opened[id]
	delete(m.opened, id)
	m.mu.Unlock()
	if r != nil {
		r.close()
	}
}

// CloseAll does the same for all runners.
func (m *Mapper) CloseAll() {
	m.mu.Lock()
	all := m.opened
	m.opened = nil
	m.mu.Unlock()
	for _, r := range all {
		r.close()
	}
}

// close ends the mappings and their connections, and waits for their goroutines.
func (r *runner) close() {
	r.cancel()
	for _, l := range r.listeners {
		_ = l.Close()
	}
	r.parts.Wait()
}

// serve accepts connections until ctx ends. It closes connections beyond the limits.
func (r *runner) serve(ctx context.Context, listener net.Listener, target netip.AddrPort) {
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return
		}
		if err != nil { // for example, no descriptors are left
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		release, ok := r.slots.Take()
		if !ok {
			_ = conn.Close()
			continue
		}
		r.parts.Go(func() {
			defer release()
			forward(ctx, conn.(*net.TCPConn), target)
		})
	}
}

// forward copies data in both directions until both sides have closed.
func forward(ctx context.Context, conn *net.TCPConn, target netip.AddrPort) {
	defer conn.Close()
	d := net.Dialer{Timeout: dialWithin}
	there, err := d.DialContext(ctx, "tcp", target.String())
	if err != nil {
		return
	}
	defer there.Close()
	defer context.AfterFunc(ctx, func() { _, _ = conn.Close(), there.Close() })()
	var halves sync.WaitGroup
	halves.Go(func() { pass(there.(*net.TCPConn), conn) })
	halves.Go(func() { pass(conn, there.(*net.TCPConn)) })
	halves.Wait()
}

// pass copies one direction until from ends, and passes the end on. After an error it closes both
// connections.
func pass(to, from *net.TCPConn) {
	_, err := io.Copy(to, from)
	if err != nil { // the other direction can't continue either
		_, _ = to.Close(), from.Close()
		return
	}
	_ = to.CloseWrite()
}
