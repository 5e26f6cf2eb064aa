package clients

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/pipes"
)

// A remote is a connection from an address.
type remote struct {
	net.Conn
	address string
}

func (r remote) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(r.address))
}

func (remote) Close() error { return nil }

// accept returns a connection that p has accepted from an address.
func accept(t *testing.T, p *Limiter, address string) net.Conn {
	t.Helper()
	from := make(pipes.Listener, 1)
	from <- remote{address: address}
	conn, err := p.Listen(from).Accept()
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// serve serves a request on a connection.
func serve(p *Limiter, conn net.Conn, header http.Header, handle func(r *http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header = header
	w := httptest.NewRecorder()
	p.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { handle(r) })).
		ServeHTTP(w, r.WithContext(ConnContext(context.Background(), conn)))
	return w
}

func TestOnlyTrustedProxiesNameClients(t *testing.T) {
	p := New(Bounds{}, netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::7/128"))
	const by, proto = "X-Forwarded-For", "X-Forwarded-Proto"
	for _, test := range []struct {
		from      string
		header    http.Header
		client    string
		peer      string
		encrypted bool
	}{
		{"192.0.2.1:5", http.Header{by: {"198.51.100.7"}, proto: {"https"}}, "192.0.2.1", "192.0.2.1", false},
		{"10.0.1.1:5", http.Header{by: {"198.51.100.7"}, proto: {"https"}}, "10.0.1.1", "10.0.1.1", false},
		{"10.0.0.1:5", http.Header{}, "10.0.0.1", "10.0.0.1", false},
		{"10.0.0.1:5", http.Header{by: {"198.51.100.7"}, proto: {"https"}}, "198.51.100.7", "198.51.100.7", true},
		{"[::ffff:10.0.0.1]:5", http.Header{by: {"198.51.100.7:1234"}, proto: {"http"}}, "198.51.100.7", "198.51.100.7", false},
		{"10.0.0.1:5", http.Header{by: {"203.0.113.9, 198.51.100.7"}}, "198.51.100.7", "198.51.100.7", false}, // the client claims the first
		{"10.0.0.1:5", http.Header{by: {"203.0.113.9, 198.51.100.7, 10.0.0.2"}}, "198.51.100.7", "198.51.100.7", false},
		{"10.0.0.1:5", http.Header{by: {"203.0.113.9", "198.51.100.7", "10.0.0.2"}}, "198.51.100.7", "198.51.100.7", false},
		{"10.0.0.1:5", http.Header{by: {"10.0.0.3, 10.0.0.2"}}, "10.0.0.3", "10.0.0.3", false},
		{"10.0.0.1:5", http.Header{by: {"203.0.113.9, unknown, 10.0.0.2"}}, "10.0.0.2", "10.0.0.2", false},
		{"10.0.0.1:5", http.Header{by: {"203.0.113.9,"}}, "10.0.0.1", "10.0.0.1", false},
		{"10.0.0.1:5", http.Header{by: {""}}, "10.0.0.1", "10.0.0.1", false},
		{"10.0.0.1:5", http.Header{by: {"[2001:db8:1:2:3::4]:77"}}, "2001:db8:1:2:3::4", "2001:db8:1:2::", false},
		{"10.0.0.1:5", http.Header{by: {"2001:db8:1:2:3::4"}}, "2001:db8:1:2:3::4", "2001:db8:1:2::", false},
		{"10.0.0.1:5", http.Header{by: {"::ffff:198.51.100.7"}}, "198.51.100.7", "198.51.100.7", false},
		{"[fd00::7]:5", http.Header{by: {"198.51.100.7"}, proto: {"http, https"}}, "198.51.100.7", "198.51.100.7", true},
		{"[fd00::7]:5", http.Header{by: {"198.51.100.7"}, proto: {"https, http"}}, "198.51.100.7", "198.51.100.7", false},
		{"[fd00::8]:5", http.Header{by: {"198.51.100.7"}}, "fd00::8", "fd00::", false},
	} {
		conn := accept(t, p, test.from)
		served := false
		serve(p, conn, test.header, func(r *http.Request) {
			served = true
			if got := ClientAddress(r.Context()).String(); got != test.client {
				t.Errorf("%s %v: the client is %s, want %s", test.from, test.header, got, test.client)
			}
			if got := PeerName(r.Context()); got != "peer "+test.peer {
				t.Errorf("%s %v: the peer is %s", test.from, test.header, got)
			}
			if Encrypted(r) != test.encrypted {
				t.Errorf("%s %v: encrypted: %t", test.from, test.header, !test.encrypted)
			}
		})
		if err := conn.Close(); err != nil || !served {
			t.Errorf("%s: served: %t, %v", test.from, served, err)
		}
		if p.Usage().Peers != 0 {
			t.Errorf("%s: %d peers are known, want 0", test.from, p.Usage().Peers)
		}
	}
}

// A client of a proxy takes nothing from the limits of the others. The proxy's connections have no
// limit.
func TestEachClientOfAProxyIsBounded(t *testing.T) {
	p := New(Bounds{Connections: 1, Operations: 1, PeerBodies: 10}, netip.MustParsePrefix("10.0.0.1/32"))
	one, other := accept(t, p, "10.0.0.1:1"), accept(t, p, "10.0.0.1:2")
	defer one.Close()
	defer other.Close()
	by := func(client string) http.Header { return http.Header{"X-Forwarded-For": {client}} }
	serve(p, one, by("198.51.100.7"), func(r *http.Request) {
		first := p.Reserve(r.Context(), Credential{})
		defer first.Release()
		if err := first.Operate(); err != nil {
			t.Fatal(err)
		}
		if err := first.Grow(10); err != nil {
			t.Fatal(err)
		}
		serve(p, other, by("198.51.100.7"), func(r *http.Request) {
			second := p.Reserve(r.Context(), Credential{})
			defer second.Release()
			if err := second.Operate(); runtime.CodeOf(err) != runtime.CodeQuotaExceeded {
				t.Errorf("a second operation: got %v, want QUOTA_EXCEEDED", err)
			}
			if err := second.Grow(1); runtime.CodeOf(err) != runtime.CodeQuotaExceeded {
				t.Errorf("more memory: got %v, want QUOTA_EXCEEDED", err)
			}
		})
		serve(p, other, by("198.51.100.8"), func(r *http.Request) {
			second := p.Reserve(r.Context(), Credential{})
			defer second.Release()
			if err := second.Operate(); err != nil {
				t.Errorf("another client: %v", err)
			}
		})
	})
}

// HTTP/2 carries concurrent requests, so further ones count as connections.
func TestFurtherRequestsOfAConnectionCountAsConnections(t *testing.T) {
	p := New(Bounds{Connections: 2})
	conn := accept(t, p, "192.0.2.1:1")
	defer conn.Close()
	within := func(handle func()) *httptest.ResponseRecorder {
		return serve(p, conn, http.Header{}, func(*http.Request) { handle() })
	}
	within(func() {
		within(func() {
			w := within(func() { t.Error("a third request is served") })
			if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" || w.Body.Len() > 0 {
				t.Errorf("%d %v %q", w.Code, w.Header(), w.Body)
			}
		})
		within(func() {})
	})
	if used := p.Usage().Connections; used != 1 {
		t.Errorf("%d connections are counted afterwards, want 1", used)
	}
}
