package access

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

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// Bounds of mapped connections.
const (
	maxConnections = 256  // concurrent connections of one runner
	maxOfAll       = 4096 // of all runners, besides one of each; each takes two descriptors of the server
	dialWithin     = 10 * time.Second
)

// A portMapper maps runners' ports to those of an address. Its methods are safe for concurrent use.
type portMapper struct {
	At          netip.Addr
	First, Last int

	mu     sync.Mutex // guards the fields below
	next   int        // offset of the next port to try
	opened map[string]*mappedRunner
	slots  *sharedSlots // for connections
}

type mappedRunner struct {
	cancel    context.CancelFunc
	listeners []net.Listener
	parts     sync.WaitGroup // goroutines of listeners and connections; close waits for them
	slots     *runnerSlots   // for connections
}

// Open maps a runner's ports: it forwards connections to them over the runner's link, to the address
// to. A mapping with a valid address gets that one, else a free port. Open returns all mappings.
// After an error none is mapped.
func (m *portMapper) Open(id string, to netip.Addr, wanted []runtime.PortMapping) ([]runtime.PortMapping, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.opened[id] != nil {
		return nil, errors.New("its ports are mapped already")
	}
	ctx, cancel := context.WithCancel(context.Background())
	if m.slots == nil {
		m.slots = newSharedSlots(maxOfAll, maxConnections)
	}
	r := &mappedRunner{cancel: cancel, slots: m.slots.Share()}
	mapped := slices.Clone(wanted)
	for i := range mapped {
		listener, err := m.listen(mapped[i].Address)
		if err != nil {
			r.close()
			return nil, fmt.Errorf("map port %d: %w", mapped[i].ExposedPort, err)
		}
		mapped[i].Address = listener.Addr().String()
		r.listeners = append(r.listeners, listener)
		target := netip.AddrPortFrom(to, uint16(mapped[i].ExposedPort))
		r.parts.Go(func() { r.serve(ctx, listener, target) })
	}
	if m.opened == nil {
		m.opened = map[string]*mappedRunner{}
	}
	m.opened[id] = r
	return mapped, nil
}

// listen listens on an address, or on a free port if the address is invalid. The caller holds mu.
func (m *portMapper) listen(address string) (net.Listener, error) {
	var config net.ListenConfig
	if at, err := netip.ParseAddrPort(address); err == nil {
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
func (m *portMapper) Close(id string) {
	m.mu.Lock()
	r := m.opened[id]
	delete(m.opened, id)
	m.mu.Unlock()
	if r != nil {
		r.close()
	}
}

// CloseAll does the same for all runners.
func (m *portMapper) CloseAll() {
	m.mu.Lock()
	all := m.opened
	m.opened = nil
	m.mu.Unlock()
	for _, r := range all {
		r.close()
	}
}

func (r *mappedRunner) close() {
	r.cancel()
	for _, l := range r.listeners {
		_ = l.Close()
	}
	r.parts.Wait()
}

// serve accepts connections until ctx ends. It closes connections beyond the limits.
func (r *mappedRunner) serve(ctx context.Context, listener net.Listener, target netip.AddrPort) {
	accept(ctx, listener, func(conn net.Conn) bool {
		return r.slots.Go(&r.parts, func() { forward(ctx, conn.(*net.TCPConn), target) })
	})
}

// accept passes connections to take until ctx ends, and closes those that it doesn't take.
func accept(ctx context.Context, listener net.Listener, take func(net.Conn) bool) {
	for ctx.Err() == nil {
		conn, err := listener.Accept()
		if err != nil { // for example, no descriptors are left
			_ = backoff.Sleep(ctx, retryAfter)
		} else if ctx.Err() != nil || !take(conn) {
			_ = conn.Close()
		}
	}
}

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

// pass copies one direction, and passes its end on. An error ends both directions.
func pass(to, from *net.TCPConn) {
	if _, err := io.Copy(to, from); err != nil {
		_, _ = to.Close(), from.Close()
		return
	}
	_ = to.CloseWrite()
}

// sharedSlots limit how many things all runners do concurrently. Each runner always gets a first one, which doesn't
// count for all. It gets one more while it has fewer than are free for all, so busy runners leave some for others.
type sharedSlots struct {
	all, each int // most that count for all, and most of one runner

	mu    sync.Mutex // guards the fields below, and those of each runnerSlots
	taken int        // those that count for all
}

func newSharedSlots(all, each int) *sharedSlots { return &sharedSlots{all: all, each: each} }

// A runnerSlots is what one runner may take. Its methods are safe for concurrent use.
type runnerSlots struct {
	of    *sharedSlots
	first bool // the one that doesn't count for all is taken
	more  int  // taken ones that count for all
}

// Share returns the slots of one runner, which has taken none yet.
func (s *sharedSlots) Share() *runnerSlots { return &runnerSlots{of: s} }

// Go calls f in a goroutine of parts, with a slot. It reports false if the runner gets none now.
func (s *runnerSlots) Go(parts *sync.WaitGroup, f func()) bool {
	release, ok := s.Take()
	if ok {
		parts.Go(func() {
			defer release()
			f()
		})
	}
	return ok
}

// Take takes a slot, and returns a function that releases it. It reports false if the runner gets none now.
func (s *runnerSlots) Take() (release func(), ok bool) {
	of := s.of
	of.mu.Lock()
	defer of.mu.Unlock()
	if !s.first {
		s.first = true
		return func() {
			of.mu.Lock()
			defer of.mu.Unlock()
			s.first = false
		}, true
	}
	if s.more >= min(of.each-1, of.all-of.taken) {
		return nil, false
	}
	s.more, of.taken = s.more+1, of.taken+1
	return func() {
		of.mu.Lock()
		defer of.mu.Unlock()
		s.more, of.taken = s.more-1, of.taken-1
	}, true
}
