// Package ports maps runners' TCP ports to ports of the machine: what connects
// there is connected with the runner, over its link. Runners see the machine
// as the client.
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
)

// Bounds.
const (
	maxConnections = 256  // of one runner
	maxOfAll       = 4096 // each has two descriptors of the server's
	dialWithin     = 10 * time.Second
)

// A Mapper has the ports First to Last of the addresses At. Its methods may be
// called at once.
type Mapper struct {
	At          netip.Addr
	First, Last int

	mu     sync.Mutex // guards all below
	next   int        // where free ports are looked for
	opened map[string]*runner
	tokens chan struct{} // of all runners' connections
}

// A Mapping is one port of a runner and where it is reached.
type Mapping struct {
	Port int
	At   netip.AddrPort
}

type runner struct {
	cancel    context.CancelFunc
	listeners []net.Listener
	parts     sync.WaitGroup
	tokens    chan struct{}
	ofAll     chan struct{} // the Mapper's
}

// Open maps a runner's ports, to those of the mappings that have one already,
// and returns all of them. After an error none is mapped.
func (m *Mapper) Open(id string, to netip.Addr, wanted []Mapping) ([]Mapping, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.opened[id] != nil {
		return nil, errors.New("its ports are mapped already")
	}
	ctx, cancel := context.WithCancel(context.Background())
	if m.tokens == nil {
		m.tokens = make(chan struct{}, maxOfAll)
	}
	r := &runner{cancel: cancel, tokens: make(chan struct{}, maxConnections), ofAll: m.tokens}
	mapped := slices.Clone(wanted)
	for i := range mapped {
		listener, err := m.listen(mapped[i].At)
		if err != nil {
			r.close()
			return nil, fmt.Errorf("map port %d: %w", mapped[i].Port, err)
		}
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

// listen takes an address, or a free port where it is none. The caller holds mu.
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
	return nil, fmt.Errorf("all ports from %d to %d are taken", m.First, m.Last)
}

// Close ends what Open began for a runner, if it did, and waits for it.
func (m *Mapper) Close(id string) {
	m.mu.Lock()
	r := m.opened[id]
	delete(m.opened, id)
	m.mu.Unlock()
	if r != nil {
		r.close()
	}
}

// CloseAll does so for all runners.
func (m *Mapper) CloseAll() {
	m.mu.Lock()
	all := m.opened
	m.opened = nil
	m.mu.Unlock()
	for _, r := range all {
		r.close()
	}
}

func (r *runner) close() {
	r.cancel()
	for _, l := range r.listeners {
		_ = l.Close()
	}
	r.parts.Wait()
}

func (r *runner) serve(ctx context.Context, listener net.Listener, target netip.AddrPort) {
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return
		}
		if err != nil { // no descriptors are left, say
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		if !r.begin(func() { forward(ctx, conn.(*net.TCPConn), target) }) {
			_ = conn.Close()
		}
	}
}

// begin has f run beside others, unless there are too many.
func (r *runner) begin(f func()) bool {
	select {
	case r.tokens <- struct{}{}:
	default:
		return false
	}
	select {
	case r.ofAll <- struct{}{}:
	default:
		<-r.tokens
		return false
	}
	r.parts.Go(func() {
		defer func() { <-r.ofAll; <-r.tokens }()
		f()
	})
	return true
}

// forward passes on what either side sends, until both have ended.
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

func pass(to, from *net.TCPConn) {
	_, err := io.Copy(to, from)
	if err != nil { // the other half can't go on either
		_, _ = to.Close(), from.Close()
		return
	}
	_ = to.CloseWrite()
}
