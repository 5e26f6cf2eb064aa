package api

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/nginxtest"
)

// TestProxyNeedsToken serves behind a real nginx: as its first example shows it, and as proxies.md does.
func TestProxyNeedsToken(t *testing.T) {
	t.Parallel()
	data := bed.DataDir(t)
	settings := bed.Settings(data, bed.CgroupsOf(data))
	settings.AllowedHosts, settings.Compat = []string{"pool.example.org"}, []string{"jobe", "mcp"}
	b, _ := bed.ServeHere(t, settings)
	bare := nginxtest.Before(t, b.Address, "")
	full := nginxtest.Before(t, b.Address, "proxy_http_version 1.1; proxy_set_header Host $http_host; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;")
	hidden := nginxtest.Before(t, b.Address, "proxy_http_version 1.1; proxy_set_header Host $http_host;")

	call := func(at, path, token string) (status int, body string) {
		t.Helper()
		method, content := http.MethodGet, []byte(nil)
		if path == "/graphql" {
			method = http.MethodPost
			content, _ = json.Marshal(map[string]string{"query": "{ me { role } }"})
		}
		r, err := http.NewRequestWithContext(t.Context(), method, at+path, bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if at != b.Address {
			r.Host = "pool.example.org"
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	for _, at := range []string{bare, full, hidden} {
		for _, path := range []string{"/graphql", "/", "/runners", "/metrics", "/mcp", "/jobe/index.php/restapi/languages", "/files/x", "/outputs/x", "/health/ready"} {
			if status, body := call(at, path, ""); status != http.StatusForbidden || !strings.Contains(body, "rockpool token create") {
				t.Errorf("%s%s: %d %s", at, path, status, body)
			}
		}
	}
	if status, body := call(b.Address, "/graphql", ""); status != http.StatusOK || !strings.Contains(body, "ADMIN") {
		t.Errorf("without a proxy: %d %s", status, body)
	}
	var made struct{ CreateToken struct{ Secret string } }
	b.Call(t, `mutation { createToken(input: {name: "admin", role: ADMIN}) { secret } }`, nil, &made)
	for _, at := range []string{full, hidden} {
		if status, body := call(at, "/graphql", made.CreateToken.Secret); status != http.StatusOK || !strings.Contains(body, "ADMIN") {
			t.Errorf("with a token: %d %s", status, body)
		}
		if status, body := call(at, "/graphql", ""); status != http.StatusUnauthorized {
			t.Errorf("without the token: %d %s", status, body)
		}
	}
}
