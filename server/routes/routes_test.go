package routes

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/compat"
	"github.com/rockpool/rockpool/compat/jobe"
	"github.com/rockpool/rockpool/compat/mcp"
	"github.com/rockpool/rockpool/compat/poseidon"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/runtime/identity"
)

// served starts a server without an engine that requires no token, and returns its address. It accepts
// these host names, or those of loopback. Its API answers every operation with {}.
func served(t *testing.T, o Options, hosts ...string) (url string) {
	t.Helper()
	if hosts == nil {
		hosts = []string{"127.0.0.1", "localhost"}
	}
	registry := identity.New(identity.Config{Open: true, Key: make([]byte, 32), Logger: zap.NewNop()})
	o.Admission = &Admission{Registry: registry}
	o.API = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodPost {
			transport.WrongMethod(w)
			return
		}
		_, _ = io.WriteString(w, "{}")
	})
	open := func() bool { return false } // see TestProxiedRequestsNeedToken
	server := httptest.NewServer(&Gate{Hosts: hosts, Origins: o.Origins, Open: open, Logger: zap.NewNop(), Next: New(o)})
	t.Cleanup(server.Close)
	return server.URL
}

func TestOnlyAllowedHostsAreServed(t *testing.T) {
	url := served(t, Options{}, "localhost", "::1", "pool.example.org")
	for host, status := range map[string]int{
		"localhost": 200, "LOCALHOST:8080": 200, "[::1]": 200, "[::1]:8080": 200, "pool.example.org:443": 200,
		"127.0.0.1": 403, "evil.example.org": 403, "localhost.evil.example.org": 403, "pool.example.org.": 403,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/graphql", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != status || (status == 403) != strings.Contains(string(text), `"FORBIDDEN"`) {
			t.Errorf("%s: got %s %s, want %d", host, response.Status, text, status)
		}
	}
}

// All routes answer OPTIONS and wrong methods with those that they have.
func TestMethods(t *testing.T) {
	url := served(t, Options{Compat: []compat.API{jobe.New(), poseidon.New(poseidon.Options{}), mcp.New()}, Counts: new(compat.Counts), Metrics: http.NotFoundHandler()})
	for path, allowed := range map[string]string{
		"/graphql": "GET, POST", "/": "GET, HEAD", "/health/live": "GET, HEAD", "/health/ready": "GET, HEAD", "/metrics": "GET, HEAD", "/mcp": "POST, DELETE",
		"/files/x": "GET, HEAD", "/outputs/x": "GET, HEAD",
		"/jobe/index.php/restapi/runs": "POST", "/jobe/index.php/restapi/languages": "GET, HEAD", "/jobe/index.php/restapi/files/12345678": "HEAD, PUT",
		"/api/v1/health": "GET, HEAD", "/api/v1/version": "GET, HEAD", "/api/v1/runners": "POST", "/api/v1/runners/x": "DELETE", "/api/v1/runners/x/files": "GET, HEAD, PATCH",
		"/api/v1/execution-environments/1": "DELETE, GET, HEAD, PUT",
	} {
		for method, want := range map[string]int{"OPTIONS": http.StatusNoContent, "LOCK": http.StatusMethodNotAllowed} {
			header := allowed
			if method == "OPTIONS" {
				header += ", OPTIONS"
			}
			r, err := http.NewRequestWithContext(t.Context(), method, url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if answer.StatusCode != want || answer.Header.Get("Allow") != header {
				t.Errorf("%s %s: %s, Allow: %s, want %d, %s", method, path, answer.Status, answer.Header.Get("Allow"), want, header)
			}
		}
	}
}

// HTTP/1.0 doesn't require the header Host, and only programs leave it out.
func TestRequestsWithoutAHost(t *testing.T) {
	url := served(t, Options{})
	for request, status := range map[string]int{
		"GET /health/live HTTP/1.0\r\n\r\n":                                200,
		"HEAD /graphql?query={version} HTTP/1.0\r\n\r\n":                   405,
		"GET /graphql?query={version} HTTP/1.0\r\n\r\n":                    200,
		"GET /health/live HTTP/1.0\r\nHost: evil.example.org\r\n\r\n":      403,
		"GET /health/live HTTP/1.0\r\nOrigin: http://evil.example\r\n\r\n": 403,
		"GET /health/live HTTP/1.0\r\nSec-Fetch-Site: same-origin\r\n\r\n": 403,
		"GET /health/live HTTP/1.1\r\n\r\n":                                400,
		"GET /health/live HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n":  403,
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, request)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		if answer.StatusCode != status {
			t.Errorf("%q: %s, want %d", request, answer.Status, status)
		}
	}
}

func TestWelcomeNamesTheAPI(t *testing.T) {
	url := served(t, Options{})
	response, err := http.Get(url + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || !strings.Contains(string(text), "curl "+url+"/graphql") {
		t.Errorf("%s %v", text, err)
	}
}

func TestCrossSiteRequestsAreRefused(t *testing.T) {
	url := served(t, Options{Origins: []string{"https://admin.example.org"}})
	get := func(site string) int {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/graphql?query={version}", nil)
		if site != "" {
			request.Header.Set("Sec-Fetch-Site", site)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	for site, status := range map[string]int{"": 200, "none": 200, "same-origin": 200, "same-site": 403, "cross-site": 403} {
		if got := get(site); got != status {
			t.Errorf("%q: got %d, want %d", site, got, status)
		}
	}
}
