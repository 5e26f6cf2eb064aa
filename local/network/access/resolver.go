package access

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// Bounds of the resolver's work. maxMessage is in bytes, and longestTTL in seconds. renewBefore is
// the age from which an address is leased again.
const (
	maxQueries      = 256 // concurrent queries of all runners, besides one of each
	maxQueriesOfOne = 32  // concurrent queries of one runner
	maxMessage      = 4096
	askWithin       = 5 * time.Second
	retryAfter      = 50 * time.Millisecond // a failed read or accept: the loop must not spin
	idleWithin      = 10 * time.Second      // for the next query on a TCP connection
	longestTTL      = 3600
	renewBefore     = network.LeaseTime / 2
	maxLeased       = 4096 // leased addresses of one runner; its filter holds as many per family
)

// A resolver answers runners' DNS queries, at one address of the machine. It identifies a runner by
// its source address, which the packet filter enforces.
//
// It answers queries for addresses only (A and AAAA, with their aliases), and returns only addresses
// that a runner may ever reach. A runner that is limited to some names gets no answer for others,
// and its packet filter admits an address before the answer is sent.
//
// It listens from a successful listen until Run or Close ends it. Its methods are safe for
// concurrent use. The fields up to log are set before listen.
type resolver struct {
	gateway   netip.AddrPort // address to listen on
	upstreams []netip.AddrPort
	offer     network.Offer // answers contain only addresses that a runner may reach with it
	// admit lets a runner's packet filter pass packets to addresses.
	admit func(ctx context.Context, id string, l network.Lease) error
	log   *zap.Logger

	udp   net.PacketConn
	tcp   net.Listener
	slots *sharedSlots   // for queries
	parts sync.WaitGroup // goroutines of Run, which waits for them

	mu      sync.Mutex // guards the fields below
	clients map[netip.Addr]*dnsClient
}

type dnsClient struct {
	id     string
	narrow bool     // it may resolve only names
	names  []string // in lower case; "*.x" matches all names below x

	slots  *runnerSlots             // for queries
	leased map[netip.Addr]time.Time // guarded by resolver.mu
}

// listen listens on UDP and TCP, even if no interface has the address yet. Call Run afterwards, or
// Close.
func (r *resolver) listen() (err error) {
	listen := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		return errors.Join(raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1) }), err)
	}}
	if r.udp, err = listen.ListenPacket(context.Background(), "udp4", r.gateway.String()); err != nil {
		return err
	}
	if r.tcp, err = listen.Listen(context.Background(), "tcp4", r.udp.LocalAddr().String()); err != nil {
		_ = r.udp.Close()
		return err
	}
	r.slots, r.clients = newSharedSlots(maxQueries, maxQueriesOfOne), map[netip.Addr]*dnsClient{}
	return nil
}

// Run answers queries until ctx ends, and waits for its goroutines. It is called once.
func (r *resolver) Run(ctx context.Context) {
	r.parts.Go(func() { r.serveUDP(ctx) })
	r.parts.Go(func() { r.serveTCP(ctx) })
	<-ctx.Done()
	// This ends blocked reads and accepts.
	r.Close()
	r.parts.Wait()
}

// Close stops listening. Call it if Run isn't called.
func (r *resolver) Close() { _, _ = r.udp.Close(), r.tcp.Close() }

// Add lets a runner send queries from an address.
func (r *resolver) Add(from netip.Addr, c *dnsClient) {
	c.slots, c.leased = r.slots.Share(), map[netip.Addr]time.Time{}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients[from] = c
}

// Remove undoes Add, if the address still belongs to this runner.
func (r *resolver) Remove(from netip.Addr, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.clients[from]; c != nil && c.id == id {
		delete(r.clients, from)
	}
}

func (r *resolver) find(from net.Addr) *dnsClient {
	ap, err := netip.ParseAddrPort(from.String())
	if err != nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clients[ap.Addr().Unmap()]
}

func (r *resolver) serveUDP(ctx context.Context) {
	for packet := make([]byte, maxMessage); ctx.Err() == nil; {
		n, from, err := r.udp.ReadFrom(packet)
		if err != nil {
			_ = backoff.Sleep(ctx, retryAfter)
			continue
		}
		a := r.find(from)
		if a == nil {
			continue
		}
		question := bytes.Clone(packet[:n]) // the next read overwrites packet
		a.slots.Go(&r.parts, func() {       // the program repeats a dropped query
			if answer := r.answer(ctx, a, question, true); answer != nil {
				_, _ = r.udp.WriteTo(answer, from)
			}
		})
	}
}

// serveTCP closes connections that aren't a runner's or exceed the limits.
func (r *resolver) serveTCP(ctx context.Context) {
	accept(ctx, r.tcp, func(conn net.Conn) bool {
		a := r.find(conn.RemoteAddr())
		return a != nil && a.slots.Go(&r.parts, func() { r.serveConn(ctx, a, conn) })
	})
}

func (r *resolver) serveConn(ctx context.Context, a *dnsClient, conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	for {
		_ = conn.SetDeadline(time.Now().Add(idleWithin))
		question, err := readFramed(conn)
		if err != nil {
			return
		}
		answer := r.answer(ctx, a, question, false)
		if answer == nil || writeFramed(conn, answer) != nil {
			return
		}
	}
}

// readFramed reads a message with the length before it, the form of DNS over TCP (RFC 1035, 4.2.2).
func readFramed(from io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(from, size[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err := io.ReadFull(from, message)
	return message, err
}

// writeFramed writes a message with its length before it, in one write.
func writeFramed(to io.Writer, message []byte) error {
	_, err := to.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...))
	return err
}

// answer returns the answer to a message, or nil for a malformed message, which gets none.
func (r *resolver) answer(ctx context.Context, a *dnsClient, message []byte, datagram bool) []byte {
	var p dnsmessage.Parser
	header, err := p.Start(message)
	if err != nil || header.Response {
		return nil
	}
	questions, err := p.AllQuestions()
	if err != nil || len(questions) != 1 {
		return reply(header, nil, dnsmessage.RCodeFormatError, nil)
	}
	q := questions[0]
	room := 0xffff
	if datagram {
		room = roomOf(&p)
	}
	switch {
	case header.OpCode != 0 || q.Class != dnsmessage.ClassINET:
		return reply(header, &q, dnsmessage.RCodeNotImplemented, nil)
	case a.narrow && !allowed(a.names, q.Name.String()):
		return reply(header, &q, dnsmessage.RCodeRefused, nil)
	case q.Type != dnsmessage.TypeA && q.Type != dnsmessage.TypeAAAA:
		return reply(header, &q, dnsmessage.RCodeSuccess, nil) // no records of that type
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	found, code, err := r.forward(ctx, q)
	// The filter must admit the addresses before the program learns them.
	if err == nil && a.narrow {
		err = r.lease(ctx, a, addresses(found))
	}
	if err != nil {
		r.log.Debug("a runner's DNS query failed", zap.String("runner", a.id), zap.Error(err))
		return reply(header, &q, dnsmessage.RCodeServerFailure, nil)
	}
	answer := reply(header, &q, code, found)
	if len(answer) > room {
		// The program repeats the query over TCP.
		header.Truncated = true
		return reply(header, &q, code, nil)
	}
	return answer
}

// roomOf returns the largest answer that the sender of a message accepts, in bytes.
func roomOf(p *dnsmessage.Parser) int {
	const least, most = 512, 1232 // bounds: every resolver accepts 512; 1232 isn't fragmented on any path
	if p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return least
	}
	for {
		h, err := p.AdditionalHeader()
		if err != nil {
			return least
		}
		// The class of an OPT record is the largest datagram that its sender accepts (RFC 6891,
		// 6.1.2).
		if h.Type == dnsmessage.TypeOPT {
			return min(max(int(h.Class), least), most)
		}
		if p.SkipAdditional() != nil {
			return least
		}
	}
}

func reply(to dnsmessage.Header, q *dnsmessage.Question, code dnsmessage.RCode, answers []dnsmessage.Resource) []byte {
	m := dnsmessage.Message{Header: dnsmessage.Header{
		ID: to.ID, Response: true, OpCode: to.OpCode, RecursionDesired: to.RecursionDesired, RecursionAvailable: true,
		Truncated: to.Truncated, RCode: code,
	}, Answers: answers}
	if q != nil {
		m.Questions = []dnsmessage.Question{*q}
	}
	packed, err := m.Pack()
	if err != nil {
		return nil
	}
	return packed
}

func allowed(names []string, name string) bool {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return slices.ContainsFunc(names, func(n string) bool {
		below, all := strings.CutPrefix(n, "*")
		return n == name || all && strings.HasSuffix(name, below)
	})
}

// lease leases addresses that the runner's filter didn't get recently.
func (r *resolver) lease(ctx context.Context, a *dnsClient, all []netip.Addr) error {
	var l network.Lease
	now := time.Now()
	r.mu.Lock()
	for _, addr := range all {
		if now.Sub(a.leased[addr]) > renewBefore {
			l.Addresses = append(l.Addresses, addr)
		}
	}
	// Expired leases don't count against maxLeased.
	maps.DeleteFunc(a.leased, func(_ netip.Addr, at time.Time) bool { return now.Sub(at) > network.LeaseTime })
	full := len(a.leased)+len(l.Addresses) > maxLeased
	r.mu.Unlock()
	switch {
	case len(l.Addresses) == 0:
		return nil
	case full:
		return fmt.Errorf("it resolved more than %d addresses within %v", maxLeased, network.LeaseTime)
	}
	// All runners share mu, so it isn't held during Lease.
	if err := r.admit(ctx, a.id, l); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, addr := range l.Addresses {
		a.leased[addr] = now
	}
	return nil
}
