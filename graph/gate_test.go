package graph

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rockpool/rockpool/compat"
	"github.com/rockpool/rockpool/compat/jobe"
	"github.com/rockpool/rockpool/compat/mcp"
	"github.com/rockpool/rockpool/compat/poseidon"
	"github.com/rockpool/rockpool/graph/transport"
)

// served starts a handler with an engine that doesn't run, for requests that don't reach one.
func served(t *testing.T, options site) (url string, logs *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	options.Logger = zap.New(core)
	if options.AllowedHosts == nil {
		options.AllowedHosts = []string{"127.0.0.1", "localhost"}
	}
	options.Registry = bedOptions{}.newRegistry(t, nil)
	server := httptest.NewServer(options.handler(nil))
	t.Cleanup(server.Close)
	return server.URL, logs
}

type answer struct {
	Status int
	Header http.Header
	Data   map[string]any
	Errors []struct {
		Message    string
		Path       []any
		Extensions map[string]any
	}
}

func (a answer) code() any {
	if len(a.Errors) == 0 {
		return nil
	}
	return a.Errors[0].Extensions["code"]
}

func ask(t testing.TB, method, url, body string, header http.Header) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url+"/graphql", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	for name, values := range header {
		request.Header[name] = values
	}
	request.Host = header.Get("Host")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	out := answer{Status: response.StatusCode, Header: response.Header}
	if len(bytes.TrimSpace(text)) > 0 {
		if err := json.Unmarshal(text, &out); err != nil {
			t.Fatalf("not JSON: %s", text)
		}
	}
	return out
}

const versionQuery = `{"query": "{ version }"}`

func TestForeignOriginsAreRefusedOnEveryTransport(t *testing.T) {
	url, _ := served(t, site{AllowedOrigins: []string{"https://admin.example.org"}})
	for origin, allowed := range map[string]bool{
		"": true, url: true, "https://admin.example.org": true,
		"null": false, "https://evil.example.org": false, "https://admin.example.org.evil.example.org": false,
		"http://admin.example.org": false, "http://127.0.0.1:1": false, "file://": false,
	} {
		header := http.Header{}
		if origin != "" {
			header.Set("Origin", origin)
		}
		if got := ask(t, "POST", url, versionQuery, header); (got.Status == 200) != allowed || (!allowed && got.code() != "FORBIDDEN") {
			t.Errorf("POST from %q: %d %v", origin, got.Status, got.Errors)
		}
		if _, err := dial(t, url, header); (err == nil) != allowed {
			t.Errorf("WebSocket from %q: %v", origin, err)
		}
	}
	preflight := http.Header{"Origin": {"https://admin.example.org"}, "Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": {"content-type"}}
	if got := ask(t, "OPTIONS", url, "", preflight); got.Header.Get("Access-Control-Allow-Origin") != "https://admin.example.org" {
		t.Errorf("preflight of an allowed origin: %d %v", got.Status, got.Header)
	}
	for method, headers := range map[string]string{"PUT": "content-type,x-api-key", "PATCH": "content-type,poseidon-token"} { // of disabled APIs
		preflight.Set("Access-Control-Request-Method", method)
		preflight.Set("Access-Control-Request-Headers", headers)
		if got := ask(t, "OPTIONS", url, "", preflight); got.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("preflight of a client of a disabled API: %d %v", got.Status, got.Header)
		}
	}
	url, _ = served(t, site{AllowedOrigins: []string{"https://admin.example.org"}, Compat: []compat.API{jobe.New(), poseidon.New(poseidon.Options{}), mcp.New()}, Counts: new(compat.Counts)})
	for method, headers := range map[string]string{"PUT": "content-type,x-api-key", "PATCH": "content-type,poseidon-token", "HEAD": "x-api-key"} {
		preflight.Set("Access-Control-Request-Method", method)
		preflight.Set("Access-Control-Request-Headers", headers)
		if got := ask(t, "OPTIONS", url, "", preflight); got.Header.Get("Access-Control-Allow-Origin") != "https://admin.example.org" {
			t.Errorf("preflight of %s with %s: %d %v", method, headers, got.Status, got.Header)
		}
	}
	preflight.Set("Access-Control-Request-Method", "DELETE") // for a page that is an MCP client
	preflight.Set("Access-Control-Request-Headers", "authorization,content-type,mcp-protocol-version,mcp-session-id")
	if got := ask(t, "OPTIONS", url, "", preflight); got.Header.Get("Access-Control-Allow-Origin") != "https://admin.example.org" {
		t.Errorf("preflight of an MCP client: %d %v", got.Status, got.Header)
	}
	preflight.Set("Origin", "https://evil.example.org")
	if got := ask(t, "OPTIONS", url, "", preflight); got.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("preflight of a foreign origin: %d %v", got.Status, got.Header)
	}
}

// A page of any site can send a form. The server must not accept it as an operation.
func TestFormsOfOtherSitesAreRefused(t *testing.T) {
	url, _ := served(t, site{})
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/json2"} {
		want, code := 415, "INVALID_INPUT"
		if strings.HasPrefix(kind, "multipart/form-data") { // it is accepted only with a header that no form has
			want, code = 403, "FORBIDDEN"
		}
		if got := ask(t, "POST", url, versionQuery, http.Header{"Content-Type": {kind}}); got.Status != want || got.code() != code {
			t.Errorf("%q: %d %v", kind, got.Status, got.Errors)
		}
	}
	if got := ask(t, "POST", url, versionQuery, http.Header{"Content-Type": {"application/json; charset=utf-8"}}); got.Status != 200 {
		t.Errorf("JSON: %d %v", got.Status, got.Errors)
	}
}

func TestBodiesAreLimited(t *testing.T) {
	url, _ := served(t, site{Settings: transport.Settings{MaxBody: 1000}})
	fits := versionQuery + strings.Repeat(" ", 1000-len(versionQuery))
	if got := ask(t, "POST", url, fits, nil); got.Status != 200 {
		t.Errorf("1000 bytes: %d %v", got.Status, got.Errors)
	}
	if got := ask(t, "POST", url, fits+" ", nil); got.Status != 413 || got.code() != "LIMIT_EXCEEDED" {
		t.Errorf("1001 bytes: %d %v", got.Status, got.Errors)
	}
	for size, status := range map[int]int{1000: 200, 1001: 413} {
		// A reader of unknown length makes a chunked body.
		body := io.MultiReader(strings.NewReader(fits), strings.NewReader(strings.Repeat(" ", size-1000)))
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/graphql", body)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != status {
			t.Errorf("%d bytes, chunked: %d, want %d", size, response.StatusCode, status)
		}
	}
}
