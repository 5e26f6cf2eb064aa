package connections

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/test/tlstest"
	"github.com/rockpool/rockpool/test/wait"
)

// A bed is a TLS server, assembled as in package server.
type bed struct {
	authority *tlstest.Authority
	address   string
	peers     *clients.Limiter
}

// A setup has a test's changes to a bed.
type setup struct {
	files         Files
	bounds        clients.Bounds
	headerTimeout time.Duration
}

// refusing serves requests that aren't misread with next.
func refusing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status, err := clients.CheckFraming(w, r); err != nil {
			http.Error(w, err.Message, status)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func serve(t *testing.T, s setup, handler http.Handler) bed {
	t.Helper()
	b := bed{authority: tlstest.New(t), peers: clients.New(s.bounds)}
	s.files.Cert, s.files.Key = b.authority.Write(t, t.TempDir(), "pool.example.org")
	if s.files.MinVersion == 0 {
		s.files.MinVersion = tls.VersionTLS13
	}
	certificates, err := LoadCertificates(s.files, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		Handler: b.peers.Handler(refusing(handler)), ConnContext: clients.ConnContext,
		ReadHeaderTimeout: max(s.headerTimeout, 100*time.Millisecond), MaxHeaderBytes: 16 << 10, ErrorLog: zap.NewStdLog(zap.NewNop()),
	}
	if s.headerTimeout == 0 {
		server.ReadHeaderTimeout = wait.Limit
	}
	Configure(server)
	listener := b.peers.Listen(&tlsListener{tcp, certificates, zap.NewNop()})
	listener.RefuseTime = wait.Limit
	b.address = tcp.Addr().String()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := wait.Receive(t, ended, "serving ends"); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("got %v, want %v", err, http.ErrServerClosed)
		}
		listener.Wait()
	})
	return b
}

// client returns a client of HTTP/2, or only of HTTP/1.
func (b bed) client(t *testing.T, http2 bool, change func(*tls.Config)) *http.Client {
	t.Helper()
	config := &tls.Config{RootCAs: b.authority.Pool}
	if change != nil {
		change(config)
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: http2}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: wait.Limit}
}

// dial returns a TLS connection that has negotiated a protocol; "" for none.
func (b bed) dial(t *testing.T, protocol string) *tls.Conn {
	t.Helper()
	config := &tls.Config{RootCAs: b.authority.Pool}
	if protocol != "" {
		config.NextProtos = []string{protocol}
	}
	conn, err := tls.Dial("tcp", b.address, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(wait.Limit))
	return conn
}

func get(t *testing.T, c *http.Client, address string) (*http.Response, string) {
	t.Helper()
	response, err := c.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(text)
}

func TestBothProtocolsAreSpoken(t *testing.T) {
	b := serve(t, setup{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %t %s %s %s", r.Proto, r.TLS != nil && r.TLS.HandshakeComplete, r.Host, clients.ClientAddress(r.Context()), body)
	}))
	for http2, want := range map[bool]string{true: "HTTP/2.0", false: "HTTP/1.1"} {
		c := b.client(t, http2, nil)
		for range 2 { // on one connection
			if _, text := get(t, c, "https://"+b.address+"/"); text != want+" true "+b.address+" 127.0.0.1 " {
				t.Errorf("HTTP/2 %t: %q", http2, text)
			}
		}
		// This content would end a connection of HTTP/1. For HTTP/2 it is valid.
		long := strings.Repeat("\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 10_000)
		response, err := c.Post("https://"+b.address+"/", "text/plain", strings.NewReader(long))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		if _ = response.Body.Close(); err != nil || !strings.HasSuffix(string(text), long) {
			t.Errorf("HTTP/2 %t: %d bytes, %v", http2, len(text), err)
		}
		if n := b.peers.Usage().Connections; n == 0 {
			t.Errorf("HTTP/2 %t: no connection is counted", http2)
		}
	}
}

func TestVersionsOfTLS(t *testing.T) {
	for _, test := range []struct {
		least, spoken uint16
		fine          bool
	}{{tls.VersionTLS13, tls.VersionTLS13, true}, {tls.VersionTLS13, tls.VersionTLS12, false}, {tls.VersionTLS12, tls.VersionTLS12, true}, {tls.VersionTLS12, tls.VersionTLS11, false}} {
		b := serve(t, setup{files: Files{MinVersion: test.least}}, http.NotFoundHandler())
		c := b.client(t, true, func(config *tls.Config) { config.MinVersion, config.MaxVersion = tls.VersionTLS10, test.spoken })
		response, err := c.Get("https://" + b.address)
		if (err == nil) != test.fine {
			t.Errorf("%s to a server from %s: %v", tls.VersionName(test.spoken), tls.VersionName(test.least), err)
		}
		if err == nil {
			_ = response.Body.Close()
		}
	}
}

func TestCertificatesOfClients(t *testing.T) {
	clients, strangers := tlstest.New(t), tlstest.New(t)
	for _, test := range []struct {
		optional, shows bool
		by              *tlstest.Authority
		fine            bool
	}{{false, true, clients, true}, {false, false, nil, false}, {false, true, strangers, false}, {true, true, clients, true}, {true, false, nil, true}, {true, true, strangers, false}} {
		b := serve(t, setup{files: Files{ClientCA: clients.File, Optional: test.optional}}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if (len(r.TLS.VerifiedChains) > 0) != test.shows {
				t.Errorf("%+v: %d chains", test, len(r.TLS.VerifiedChains))
			}
		}))
		c := b.client(t, true, func(config *tls.Config) {
			if test.shows {
				cert := test.by.Client(t, "client")
				// Otherwise the client omits a certificate that the server wouldn't accept.
				config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
			}
		})
		response, err := c.Get("https://" + b.address)
		if (err == nil) != test.fine {
			t.Errorf("%+v: %v", test, err)
		}
		if err == nil {
			_ = response.Body.Close()
		}
	}
}

// TestRequestsAreCheckedAfterTLS: two lengths and too many fields are refused in decrypted requests.
func TestRequestsAreCheckedAfterTLS(t *testing.T) {
	b := serve(t, setup{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if len(r.Header) > 100 {
			t.Error("it is served")
		}
	}))
	for _, protocol := range []string{"", "http/1.1"} {
		for head, want := range map[string]int{
			"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n": http.StatusBadRequest,
			strings.Repeat("a: b\r\n", 101):                       http.StatusRequestHeaderFieldsTooLarge,
			"Content-Length: 0\r\n":                               http.StatusOK,
		} {
			conn := b.dial(t, protocol)
			if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\n"+head+"\r\n"); err != nil {
				t.Fatal(err)
			}
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _ = response.Body.Close(); response.StatusCode != want {
				t.Errorf("%.30q: %s", head, response.Status)
			}
		}
	}
	r := httptest.NewRequest(http.MethodGet, "https://"+b.address+"/", nil)
	r.RequestURI = ""
	for i := range 101 {
		r.Header.Set(fmt.Sprintf("A%d", i), "b")
	}
	response, err := b.client(t, true, nil).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if _ = response.Body.Close(); response.StatusCode != http.StatusRequestHeaderFieldsTooLarge || response.ProtoMajor != 2 {
		t.Errorf("by HTTP/2: %s %s", response.Proto, response.Status)
	}
}

// TestTheProtocolMustBeTheChosenOne: otherwise requests would skip the checks of HTTP/1.
func TestTheProtocolMustBeTheChosenOne(t *testing.T) {
	b := serve(t, setup{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it is served") }))
	settings := "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	for _, test := range []struct{ protocol, sent string }{
		{"h2", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
		{"h2", "PRI * HTTP/2.0\r\nHost: x\r\n\r\n"},
		{"http/1.1", clientPreface + settings},
		{"", clientPreface + settings},
	} {
		conn := b.dial(t, test.protocol)
		if _, err := io.WriteString(conn, test.sent); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(conn)
		if errors.Is(err, os.ErrDeadlineExceeded) || !bytes.HasPrefix(answer, []byte("HTTP/1.1 400")) && len(answer) > 0 {
			t.Errorf("%q for %q: %q, %v", test.protocol, test.sent, answer, err)
		}
	}
}

func TestPlainHTTPGetsAHintToUseTLS(t *testing.T) {
	b := serve(t, setup{}, http.NotFoundHandler())
	for _, size := range []int{0, 100_000} {
		conn, err := net.Dial("tcp", b.address)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(wait.Limit))
		if _, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size)); err != nil {
			t.Fatal(err)
		}
		_ = conn.(*net.TCPConn).CloseWrite()
		if text, err := io.ReadAll(conn); err != nil || !bytes.HasPrefix(text, []byte("HTTP/1.0 400")) || !bytes.Contains(text, []byte("https://")) {
			t.Errorf("with %d bytes: %q, %v", size, text, err)
		}
		_ = conn.Close()
	}
}

// TestSilentHandshakesEnd: they hold a connection no longer than the time limit of a request's head.
func TestSilentHandshakesEnd(t *testing.T) {
	b := serve(t, setup{headerTimeout: 100 * time.Millisecond}, http.NotFoundHandler())
	for _, sent := range []string{"", "\x16\x03\x01\x02\x00\x01"} {
		conn, err := net.Dial("tcp", b.address)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(wait.Limit))
		_, _ = io.WriteString(conn, sent)
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: %v", sent, err)
		}
		_ = conn.Close()
	}
	wait.For(t, "nothing is held", func() bool { return b.peers.Usage().Connections == 0 && b.peers.Usage().Peers == 0 })
}

// TestRefusedConnectionsGetTheReasonOverTLS, also those that would use HTTP/2.
func TestRefusedConnectionsGetTheReasonOverTLS(t *testing.T) {
	b := serve(t, setup{bounds: clients.Bounds{Connections: 1}}, http.NotFoundHandler())
	first := b.dial(t, "")
	if response, _ := get(t, b.client(t, true, nil), "https://"+b.address); response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") == "" {
		t.Errorf("%s", response.Status)
	}
	_ = first.Close()
	wait.For(t, "it counts no more", func() bool { return b.peers.Usage().Connections == 0 })
	if response, _ := get(t, b.client(t, true, nil), "https://"+b.address); response.StatusCode != http.StatusNotFound {
		t.Errorf("afterwards: %s", response.Status)
	}
}

// TestConcurrentRequestsCountAsConnections of their peer, also on the same connection.
func TestConcurrentRequestsCountAsConnections(t *testing.T) {
	started, end := make(chan struct{}), make(chan struct{})
	b := serve(t, setup{bounds: clients.Bounds{Connections: 3}}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		started <- struct{}{}
		<-end
	}))
	c := b.client(t, true, nil)
	answers := make(chan int, 4)
	ask := func() {
		response, err := c.Get("https://" + b.address)
		if err != nil {
			t.Error(err)
			answers <- 0
			return
		}
		_ = response.Body.Close()
		answers <- response.StatusCode
	}
	for range 3 {
		go ask()
		wait.Receive(t, started, "it is served")
	}
	go ask()
	if status := wait.Receive(t, answers, "one too many is answered"); status != http.StatusTooManyRequests {
		t.Errorf("one too many: got %d, want %d", status, http.StatusTooManyRequests)
	}
	close(end)
	for range 3 {
		if status := wait.Receive(t, answers, "the others are answered"); status != http.StatusOK {
			t.Errorf("another: got %d, want %d", status, http.StatusOK)
		}
	}
}

// TestCloseDoesNotWaitForStalledClients: a client that reads nothing doesn't delay a server's stop.
func TestCloseDoesNotWaitForStalledClients(t *testing.T) {
	full := make(chan net.Conn, 1)
	b := serve(t, setup{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		below := clients.Carrier(conn)
		for _, size := range []int{1 << 20, 1} { // until the kernel takes not even a byte more
			for err = nil; err == nil; {
				_ = below.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
				_, err = below.Write(make([]byte, size))
			}
		}
		_ = below.SetWriteDeadline(time.Time{})
		full <- conn
	}))
	conn := b.dial(t, "http/1.1")
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	stalled := wait.Receive(t, full, "the connection is full")
	began := time.Now()
	_ = stalled.Close()
	if took := time.Since(began); took > 4*time.Second { // crypto/tls waits for 5 s
		t.Errorf("it took %s", took)
	}
}

// TestCloseSendsCloseNotify: a client can distinguish the end of a response or a WebSocket from a
// broken connection.
func TestCloseSendsCloseNotify(t *testing.T) {
	b := serve(t, setup{files: Files{MinVersion: tls.VersionTLS12}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hijacked" {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_ = conn.Close()
		}
	}))
	for _, path := range []string{"/", "/hijacked"} {
		tcp, err := net.Dial("tcp", b.address)
		if err != nil {
			t.Fatal(err)
		}
		defer tcp.Close()
		_ = tcp.SetDeadline(time.Now().Add(wait.Limit))
		var received bytes.Buffer
		conn := tls.Client(tappedConn{tcp, io.TeeReader(tcp, &received)}, &tls.Config{RootCAs: b.authority.Pool, ServerName: "localhost", MaxVersion: tls.VersionTLS12})
		if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(conn); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		last := byte(0)
		for records := received.Bytes(); len(records) > 5; {
			last = records[0]
			records = records[5+int(records[3])<<8+int(records[4]):]
		}
		if last != 21 { // alert
			t.Errorf("%s: the last record is of type %d, want 21", path, last)
		}
	}
}

// A tappedConn is a connection whose reads a test can inspect.
type tappedConn struct {
	net.Conn
	reader io.Reader
}

func (c tappedConn) Read(p []byte) (int, error) { return c.reader.Read(p) }

// TestOtherServersForwardTLS: a server that forwards connections doesn't decrypt them, and the
// leader knows the client's address.
func TestOtherServersForwardTLS(t *testing.T) {
	authority := tlstest.New(t)
	cert, key := authority.Write(t, t.TempDir(), "pool.example.org")
	certificates, err := LoadCertificates(Files{Cert: cert, Key: key, MinVersion: tls.VersionTLS13}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	tcp := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	front, back := tcp(), tcp()
	defer back.Close()
	leader := Leader{Address: back.Addr().String(), Secret: "between-servers"}
	passing := Forward(front, 10, func() Leader { return leader })
	defer passing.Close()
	known := clients.New(clients.Bounds{})
	server := &http.Server{ConnContext: clients.ConnContext, Handler: known.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %t %s", r.Proto, r.TLS != nil, r.RemoteAddr)
	}))}
	Configure(server)
	ended := make(chan error, 1)
	go func() {
		ended <- server.Serve(known.Listen(&tlsListener{Receive(back, leader.Secret, nil), certificates, zap.NewNop()}))
	}()
	defer func() {
		_ = server.Close()
		<-ended
	}()
	for http2, want := range map[bool]string{true: "HTTP/2.0 true 127.0.0.1:", false: "HTTP/1.1 true 127.0.0.1:"} {
		c := bed{authority: authority}.client(t, http2, nil)
		local := ""
		dial := c.Transport.(*http.Transport)
		dial.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err == nil {
				local = conn.LocalAddr().String()
			}
			return conn, err
		}
		if _, text := get(t, c, "https://"+front.Addr().String()); !strings.HasPrefix(text, want) || !strings.HasSuffix(text, local) {
			t.Errorf("%s for %s", text, local)
		}
	}
}
