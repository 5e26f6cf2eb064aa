package access

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/test/wait"
)

// zone is the data of the tests' name server: for a name and type, the records, which may have
// another name.
var zone = map[string][]string{
	"good.example. A":       {"20.0.0.2", "20.0.0.3"},
	"good.example. AAAA":    {"2a00:77::2"},
	"alias.example. A":      {"CNAME good.example.", "good.example. 20.0.0.2", "stranger.example. 20.0.0.9"},
	"rebound.example. A":    {"192.168.77.2", "127.0.0.1", "169.254.169.254", "10.213.0.5", "20.0.0.4"},
	"rebound.example. AAAA": {"::1", "::ffff:192.168.77.2", "fd77::2", "fe80::1", "64:ff9b::c0a8:4d02"},
	"mapped.example. AAAA":  {"::ffff:20.0.0.7", "2a00:77::7"},
	"sub.wild.example. A":   {"20.0.0.5"},
	"mirror.example. A":     {"10.1.2.3"},
	"long.example. A":       many(100),
	"truncated.example. A":  {"20.0.0.6"},
}

func many(n int) (all []string) {
	for i := range n {
		all = append(all, netip.AddrFrom4([4]byte{20, 0, 1, byte(i)}).String())
	}
	return all
}

func records(q dnsmessage.Question) (all []dnsmessage.Resource) {
	for _, text := range zone[strings.ToLower(q.Name.String())+" "+strings.TrimPrefix(q.Type.String(), "Type")] {
		h := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1_000_000}
		fields := strings.Fields(text)
		if fields[0] == "CNAME" {
			all = append(all, dnsmessage.Resource{Header: h, Body: &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(fields[1])}})
			continue
		}
		if len(fields) == 2 {
			h.Name = dnsmessage.MustNewName(fields[0])
		}
		a := netip.MustParseAddr(fields[len(fields)-1])
		if q.Type == dnsmessage.TypeA {
			all = append(all, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
		} else {
			all = append(all, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	return all
}

// upstream is a name server until the test ends.
func upstream(t *testing.T, code dnsmessage.RCode) netip.AddrPort {
	t.Helper()
	var udp net.PacketConn
	var tcp net.Listener
	for try := 0; tcp == nil; try++ { // the other protocol's port may be in use
		var err error
		if udp, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		if tcp, err = net.Listen("tcp", udp.LocalAddr().String()); err != nil {
			_ = udp.Close()
			if try == 100 {
				t.Fatal(err)
			}
		}
	}
	answer := func(packet []byte, overTCP bool) []byte {
		var m dnsmessage.Message
		if err := m.Unpack(packet); err != nil {
			t.Error(err)
			return nil
		}
		m.Response, m.RCode = true, code
		cut := !overTCP && m.Questions[0].Name.String() == "truncated.example."
		if m.Truncated = cut; !cut && code == 0 {
			m.Answers = records(m.Questions[0])
		}
		packed, err := m.Pack()
		if err != nil {
			t.Error(err)
		}
		return packed
	}
	var parts sync.WaitGroup
	parts.Go(func() {
		for packet := make([]byte, maxMessage); ; {
			n, from, err := udp.ReadFrom(packet)
			if err != nil {
				return
			}
			_, _ = udp.WriteTo(answer(packet[:n], false), from)
		}
	})
	parts.Go(func() {
		for {
			conn, err := tcp.Accept()
			if err != nil {
				return
			}
			if packet, err := readFramed(conn); err == nil {
				_ = writeFramed(conn, answer(packet, true))
			}
			_ = conn.Close()
		}
	})
	t.Cleanup(func() {
		_, _ = udp.Close(), tcp.Close()
		parts.Wait()
	})
	return netip.MustParseAddrPort(udp.LocalAddr().String())
}

// A bench is a resolver under test.
type bench struct {
	*resolver
	t  *testing.T
	at netip.AddrPort

	mu     sync.Mutex // guards all below
	leased []netip.Addr
	refuse error
}

func newBench(t *testing.T, runner *dnsClient, permit ...netip.Prefix) *bench {
	t.Helper()
	b := &bench{t: t}
	r := &resolver{
		gateway: netip.MustParseAddrPort("127.0.0.1:0"), upstreams: []netip.AddrPort{upstream(t, dnsmessage.RCodeServerFailure), upstream(t, 0)},
		offer: network.Offer{Pool: network.Pool{V4: network.DefaultPool4, V6: network.DefaultPool6}, Permit: permit}, log: zap.NewNop(),
		admit: func(_ context.Context, id string, l network.Lease) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			if id != "a" || l.Check() != nil {
				t.Errorf("%s leases %v", id, l)
			}
			b.leased = append(b.leased, l.Addresses...)
			return b.refuse
		},
	}
	err := r.listen()
	for range 100 { // the other protocol's port may be in use
		if !errors.Is(err, unix.EADDRINUSE) {
			break
		}
		err = r.listen()
	}
	if err != nil {
		t.Fatal(err)
	}
	b.resolver, b.at = r, netip.MustParseAddrPort(r.udp.LocalAddr().String())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	r.Add(netip.MustParseAddr("127.0.0.1"), runner)
	return b
}

func (b *bench) exchange(protocol, name string, kind dnsmessage.Type) (*dnsmessage.Message, error) {
	ctx, cancel := context.WithTimeout(b.t.Context(), wait.Limit)
	defer cancel()
	return exchangeOver(ctx, protocol, b.at, dnsmessage.Question{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET})
}

// query returns the answer to a query: the code and the addresses.
func (b *bench) query(protocol, name string, kind dnsmessage.Type) string {
	b.t.Helper()
	m, err := b.exchange(protocol, name, kind)
	if err != nil {
		b.t.Fatal(err)
	}
	texts := []string{strings.TrimPrefix(m.RCode.String(), "RCode")}
	if m.Truncated {
		texts = append(texts, "cut")
	}
	for _, r := range m.Answers {
		if r.Header.TTL > longestTTL {
			b.t.Errorf("%s is to be kept for %d s", name, r.Header.TTL)
		}
		if a, ok := addressOf(r); ok {
			texts = append(texts, a.String())
		} else {
			texts = append(texts, "alias")
		}
	}
	return strings.Join(texts, " ")
}

// fill makes the runner resolve n further addresses.
func (b *bench) fill(n int) {
	b.resolver.mu.Lock()
	defer b.resolver.mu.Unlock()
	for i := range n {
		b.clients[netip.MustParseAddr("127.0.0.1")].leased[netip.AddrFrom4([4]byte{30, 0, byte(i >> 8), byte(i)})] = time.Now()
	}
}

func TestAnswers(t *testing.T) {
	b := newBench(t, &dnsClient{id: "a"}, netip.MustParsePrefix("10.1.0.0/16"))
	for _, c := range []struct {
		name string
		kind dnsmessage.Type
		want string
	}{
		{"good.example.", dnsmessage.TypeA, "Success 20.0.0.2 20.0.0.3"},
		{"good.example.", dnsmessage.TypeAAAA, "Success 2a00:77::2"},
		{"GOOD.example.", dnsmessage.TypeTXT, "Success"},
		{"alias.example.", dnsmessage.TypeA, "Success alias 20.0.0.2"},
		{"rebound.example.", dnsmessage.TypeA, "Success 20.0.0.4"},
		{"rebound.example.", dnsmessage.TypeAAAA, "Success"},
		{"mapped.example.", dnsmessage.TypeAAAA, "Success 2a00:77::7"},
		{"mirror.example.", dnsmessage.TypeA, "Success 10.1.2.3"},
		{"nobody.example.", dnsmessage.TypeA, "Success"},
		{"truncated.example.", dnsmessage.TypeA, "Success 20.0.0.6"},
	} {
		for _, protocol := range []string{"udp", "tcp"} {
			if got := b.query(protocol, c.name, c.kind); got != c.want {
				t.Errorf("%s, over %s: %s, want %s", c.name, protocol, got, c.want)
			}
		}
	}
	if got := b.query("udp", "long.example.", dnsmessage.TypeA); got != "Success cut" {
		t.Errorf("a long answer is %s, want Success cut", got)
	}
	if got := b.query("tcp", "long.example.", dnsmessage.TypeA); strings.Count(got, "20.0.1.") != network.MaxLease {
		t.Errorf("a long answer over TCP is %s", got)
	}
	if len(b.leased) > 0 {
		t.Errorf("%v are leased to a runner that isn't kept to names", b.leased)
	}
}

func TestNarrowRunnersResolveAllowedNamesOnly(t *testing.T) {
	b := newBench(t, &dnsClient{id: "a", narrow: true, names: []string{"good.example", "rebound.example", "*.wild.example"}})
	for name, want := range map[string]string{
		"Good.Example.": "Success 20.0.0.2 20.0.0.3", "sub.wild.example.": "Success 20.0.0.5", "wild.example.": "Refused", "notwild.example.": "Refused",
		"alias.example.": "Refused", "not-good.example.": "Refused", "good.example.evil.example.": "Refused", "rebound.example.": "Success 20.0.0.4",
	} {
		if got := b.query("udp", name, dnsmessage.TypeA); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	b.query("udp", "good.example.", dnsmessage.TypeA)
	b.query("udp", "good.example.", dnsmessage.TypeA) // leased already
	b.mu.Lock()
	slices.SortFunc(b.leased, netip.Addr.Compare)
	got := b.leased
	b.mu.Unlock()
	want := []netip.Addr{netip.MustParseAddr("20.0.0.2"), netip.MustParseAddr("20.0.0.3"), netip.MustParseAddr("20.0.0.4"), netip.MustParseAddr("20.0.0.5")}
	if !slices.Equal(got, want) {
		t.Errorf("leased are %v, want each once: %v", got, want)
	}
	b.fill(maxLeased - len(want) - 1)
	if got := b.query("udp", "good.example.", dnsmessage.TypeAAAA); got != "Success 2a00:77::2" {
		t.Errorf("the last address that there is room for: got %s, want Success 2a00:77::2", got)
	}
	b.resolver.mu.Lock()
	delete(b.clients[netip.MustParseAddr("127.0.0.1")].leased, netip.MustParseAddr("2a00:77::2"))
	b.resolver.mu.Unlock()
	b.fill(maxLeased - len(want))
	if got := b.query("udp", "good.example.", dnsmessage.TypeAAAA); got != "ServerFailure" {
		t.Errorf("more addresses than the filter holds: got %s, want ServerFailure", got)
	}
	b.mu.Lock()
	if len(b.leased) != len(want)+1 {
		t.Errorf("the filter gets %v, but there is no room", b.leased[len(want):])
	}
	b.refuse = errors.New("no")
	b.mu.Unlock()
	if got := b.query("udp", "good.example.", dnsmessage.TypeAAAA); got != "ServerFailure" {
		t.Errorf("an address that isn't leased is answered: got %s, want ServerFailure", got)
	}
}

// An address that isn't a runner's gets no answer, and neither does a removed runner's.
func TestOnlyRunnersAreAnswered(t *testing.T) {
	b := newBench(t, &dnsClient{id: "a"})
	b.Remove(netip.MustParseAddr("127.0.0.1"), "another")
	b.query("udp", "good.example.", dnsmessage.TypeA)
	b.Remove(netip.MustParseAddr("127.0.0.1"), "a")
	if m, err := b.exchange("tcp", "good.example.", dnsmessage.TypeA); err == nil { // it is closed immediately
		t.Errorf("over tcp it is answered %+v", m)
	}
	// The next runner on the same socket is answered, and nothing before that.
	conn, err := net.Dial("udp", b.at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	send := func(id uint16) {
		m := dnsmessage.Message{Header: dnsmessage.Header{ID: id}, Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("good.example."), Type: dnsmessage.TypeTXT, Class: dnsmessage.ClassINET}}}
		packed, err := m.Pack()
		if err == nil {
			_, err = conn.Write(packed)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// Queries are read in order: when the second one has been read, the first one was dropped. The
	// second one may be the new runner's.
	send(1)
	send(2)
	wait.For(t, "the resolver has read both", func() bool { return unread(t, b.udp) == 0 })
	b.Add(netip.MustParseAddr("127.0.0.1"), &dnsClient{id: "b"})
	send(3)
	_ = conn.SetReadDeadline(time.Now().Add(wait.Limit))
	for id := uint16(0); id != 3; {
		packet := make([]byte, maxMessage)
		n, err := conn.Read(packet)
		var m dnsmessage.Message
		if err := errors.Join(err, m.Unpack(packet[:n])); err != nil {
			t.Fatal(err)
		}
		if id = m.ID; id == 1 {
			t.Error("a dropped UDP query is answered")
		}
	}
}

// unread returns the bytes of the next unread packet; 0 means there is none.
func unread(t *testing.T, conn net.PacketConn) (bytes int) {
	t.Helper()
	raw, err := conn.(*net.UDPConn).SyscallConn()
	var failed error
	if err == nil {
		err = raw.Control(func(fd uintptr) { bytes, failed = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	}
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	return bytes
}

func FuzzAnswer(f *testing.F) {
	q := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("good.example."), Type: dnsmessage.TypeTXT, Class: dnsmessage.ClassINET}}}
	packed, err := q.Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(packed)
	f.Add(packed[:11])
	r := &resolver{log: zap.NewNop()} // no upstream
	a := &dnsClient{narrow: true, names: []string{"good.example"}}
	f.Fuzz(func(t *testing.T, message []byte) {
		answer := r.answer(t.Context(), a, message, true)
		if len(answer) > 1232 {
			t.Errorf("an answer of %d bytes", len(answer))
		}
		var m dnsmessage.Message
		if answer != nil && (m.Unpack(answer) != nil || !m.Response || len(m.Answers) > 0) {
			t.Errorf("%x is answered %x", message, answer)
		}
	})
}
