package image

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/imagetest"
	"github.com/rockpool/rockpool/test/refusal"
	"github.com/rockpool/rockpool/test/wait"
)

// visiting returns the transport for requests to a registry.
func visiting(t *testing.T, registry string, config Config) registryTransport {
	t.Helper()
	r, err := newRegistries(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	return registryTransport{r, registry}
}

// asks sends a request to an address, and returns the error.
func (v registryTransport) asks(t *testing.T, address string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := v.RoundTrip(q)
	if err == nil {
		_ = answer.Body.Close()
	}
	return err
}

func TestPlainHTTPOnlyOnLoopback(t *testing.T) {
	for _, c := range []struct {
		url   string
		plain []string
		sent  bool
	}{
		{"http://127.0.0.1:1/", nil, true}, {"http://[::1]:1/", nil, true}, {"http://localhost:1/", nil, true},
		{"http://10.0.0.1:1/", nil, false}, {"http://registry.local:1/", nil, false}, {"http://169.254.169.254/", nil, false},
		{"http://127.0.0.1.example.org:1/", nil, false},
		{"http://203.0.113.1:1/", []string{"203.0.113.1:2"}, false},
	} {
		err := visiting(t, "localhost:1", Config{Plain: c.plain}).asks(t, c.url)
		var plain *plainError
		if errors.As(err, &plain) == c.sent {
			t.Errorf("%s with %q: %v", c.url, c.plain, err)
		}
	}
	b := newBox(t, t.TempDir(), nil)
	if _, err := b.Resolve(t.Context(), "127.0.0.1:1/x"); runtime.CodeOf(err) != runtime.CodeClusterUnavailable {
		t.Errorf("a loopback address: got %v, want CLUSTER_UNAVAILABLE", err)
	}
}

// No remote registry can redirect the server to services on its own machine, and none to a host
// that isn't allowed. No request is sent there.
func TestRedirectsOfRegistriesAreGuarded(t *testing.T) {
	for _, c := range []struct {
		registry, address string
		permitted         []string
		says              string
	}{
		{"registry.example.org", "https://localhost:1/token", nil, "own machine"},
		{"registry.example.org", "http://127.0.0.1:1/metrics", nil, "own machine"},
		{"registry.example.org", "https://LOCALHOST:1/", nil, "own machine"},
		{"registry.example.org", "https://１２７.0.0.1:1/", nil, "ASCII"},
		{"127.0.0.1:2", "http://localhost:1/", nil, "own machine"},
		{"127.0.0.1:2", "http://localhost:1/", []string{"127.0.0.1:2", "localhost:1"}, ""},
		{"registry.example.org", "https://169.254.169.254/latest", nil, "link-local"},
		{"registry.example.org", "https://[fe80::1]/", nil, "link-local"},
		{"registry.example.org", "https://[::ffff:169.254.169.254]/", nil, "link-local"},
		{"registry.example.org", "https://[64:ff9b::a9fe:a9fe]/", nil, "link-local"},
		{"169.254.169.254", "https://169.254.169.254/v2/", nil, "link-local"},
		{"127.0.0.1:2", "http://127.0.0.1:1/", []string{"127.0.0.1:2"}, "--image-registries"},
		{"127.0.0.1:2", "http://127.0.0.1:1/", []string{"127.0.0.1:1"}, ""},
		{"a.example.org", "https://b.example.org/", []string{"a.example.org"}, "b.example.org"},
		{"a.example.org", "https://b.example.org:8443/", []string{"*.example.org"}, "--image-registries"},
		{"a.example.org", "https://example.org/", []string{"*.example.org"}, "--image-registries"},
		{"a.example.org", "https://aexample.org/", []string{"*.example.org"}, "--image-registries"},
	} {
		err := visiting(t, c.registry, Config{Registries: c.permitted}).asks(t, c.address)
		var known *runtime.Error
		if refused := errors.As(err, &known); refused != (c.says != "") || refused && (!strings.Contains(known.Message, c.says) || known.Code != runtime.CodeInvalidInput) {
			t.Errorf("%s to %s, with %q: got %v, want %q", c.registry, c.address, c.permitted, err, c.says)
		}
		to, err := url.Parse(c.address)
		if err != nil {
			t.Fatal(err)
		}
		if err := visiting(t, c.registry, Config{Registries: c.permitted}).checkRedirect(to); (err != nil) != (c.says != "") { // also if a proxy connects
			t.Errorf("%s to %s, with %q, before it is connected to: %v", c.registry, c.address, c.permitted, err)
		}
	}
	for host, permitted := range map[string]string{
		"registry.example.org": "Registry.example.org:443", "a.b.example.org": "*.example.org", "registry.example.org:5000": "registry.example.org:5000",
		"c.example.org:5000": "*.example.org:5000",
	} {
		v := visiting(t, host, Config{Registries: []string{"x.example.net", permitted}})
		if err := v.checkRedirect(&url.URL{Scheme: "https", Host: host}); err != nil {
			t.Errorf("%s, with %s: %v", host, permitted, err)
		}
	}
}

// The addresses of a host name are checked when connecting.
func TestAddressesAreCheckedAtConnect(t *testing.T) {
	listening := httptest.NewServer(http.NotFoundHandler())
	defer listening.Close()
	port := listening.URL[strings.LastIndexByte(listening.URL, ':'):]
	g := visiting(t, "", Config{}).registries
	if conn, err := g.dial(t.Context(), "tcp", "localhost"+port); err != nil {
		t.Error(err)
	} else {
		_ = conn.Close()
	}
	// Go's net/netip doesn't parse 127.1, but the resolver returns a loopback address for it.
	for _, address := range []string{"0.0.0.0" + port, "127.1" + port, "LOCALHOST." + port} {
		conn, err := g.dial(t.Context(), "tcp", address)
		if err == nil {
			_ = conn.Close()
			t.Errorf("%s is connected to", address)
		}
	}
	proxied := context.WithValue(t.Context(), viaKey{}, &url.URL{Host: "127.1" + port})
	if conn, err := g.dial(proxied, "tcp", "127.1"+port); err == nil {
		_ = conn.Close()
	} else if runtime.CodeOf(err) == runtime.CodeInvalidInput {
		t.Errorf("a proxy: %v", err)
	}
	for address, refused := range map[string]bool{
		"10.0.0.1": false, "192.168.1.1": false, "172.16.0.1": false, "fd12::1": false, "8.8.8.8": false, "2606:4700::1": false,
		"127.0.0.1": true, "::1": true, "0.0.0.0": true, "::": true, "169.254.169.254": true, "fe80::1%eth0": true, "::ffff:127.0.0.1": true,
		"64:ff9b::7f00:1": true, "64:ff9b::808:808": false, "fd00:ec2::254": true, "fd20:ce::254": true, "100.100.100.200": true, "168.63.129.16": true,
		"192.0.0.192": true, "224.0.0.1": true, "255.255.255.255": true, "ff02::1": true,
	} {
		if err := g.checkAddress("registry.example.org", netip.MustParseAddr(address)); (err != nil) != refused {
			t.Errorf("%s: %v", address, err)
		}
	}
	named := visiting(t, "", Config{Registries: []string{"metadata.example.org", "*.example.net"}, Plain: []string{"near.example.org:80"}}).registries
	for host, refused := range map[string]bool{"metadata.example.org": false, "near.example.org:80": false, "a.example.net": true} {
		if err := named.checkAddress(host, netip.MustParseAddr("169.254.1.1")); (err != nil) != refused {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// A registry that isn't permitted gets no request, and neither does one that it redirects to.
func TestOnlyPermittedRegistriesAreUsed(t *testing.T) {
	var elsewhere *imagetest.Registry
	asked := make(chan string, 100)
	count := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked <- r.URL.Path
			next.ServeHTTP(w, r)
		})
	}
	elsewhere = imagetest.NewRegistry(t, count)
	there := elsewhere.Push(small(t, "elsewhere"), "x:1")
	leading := imagetest.NewRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
				http.Redirect(w, r, "http://"+elsewhere.Host+r.URL.Path, http.StatusTemporaryRedirect)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	here := leading.Push(small(t, "elsewhere"), "x:1")
	for len(asked) > 0 {
		<-asked
	}
	b := newBox(t, t.TempDir(), func(c *Config) { c.Registries = []string{leading.Host} })
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	logIn(t, elsewhere.Host, "broken") // neither the file nor a helper is used
	_, err := b.Resolve(t.Context(), there)
	refusal.Want(t, err, runtime.CodeInvalidInput, "image", "a host that isn't permitted:")
	logIn(t, elsewhere.Host, "{}")
	if _, err := b.Resolve(t.Context(), here); runtime.CodeOf(err) != runtime.CodeInvalidInput || !strings.Contains(runtime.MessageOf(err), elsewhere.Host) {
		t.Errorf("a redirect to another host: got %v, want INVALID_INPUT that names %s", err, elsewhere.Host)
	}
	if len(asked) > 0 {
		t.Errorf("%s was requested", <-asked)
	}
	both := newBox(t, t.TempDir(), func(c *Config) { c.Registries = []string{leading.Host, elsewhere.Host} })
	if s := both.want(here); s.State != runtime.ImageReady {
		t.Errorf("where both are permitted: %+v", s)
	}
}
