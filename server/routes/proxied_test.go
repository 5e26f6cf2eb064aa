package routes

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestProxiedRequestsNeedToken(t *testing.T) {
	type header = map[string]string
	for _, test := range []struct {
		name, path, host, proto string
		header                  header
		sign                    string // "" means the request is served
	}{
		{"a program", "/graphql", "127.0.0.1:8080", "HTTP/1.1", header{"User-Agent": "curl", "X-Request-Id": "a", "Traceparent": "b", "X-Requested-With": "XMLHttpRequest"}, ""},
		{"another loopback address", "/graphql", "127.8.9.1", "HTTP/1.1", nil, ""},
		{"IPv6", "/graphql", "[::1]:8080", "HTTP/1.1", nil, ""},
		{"a name of loopback", "/", "LocalHost:8080", "HTTP/1.1", nil, ""},
		{"a name below localhost", "/", "pool.localhost", "HTTP/1.1", nil, ""},
		{"HTTP/2", "/", "localhost", "HTTP/2.0", nil, ""},
		{"a node of Nomad", "/agent/abc", "10.0.0.5:8080", "HTTP/1.1", nil, ""},
		{"an old program, or nginx that passes an empty Host on", "/", "", "HTTP/1.0", nil, "HTTP/1.0"},

		{"an old program behind a proxy", "/", "", "HTTP/1.0", header{"X-Forwarded-For": "192.0.2.1"}, "X-Forwarded-For"},
		{"a page behind a proxy", "/", "", "HTTP/1.0", header{"Origin": "http://example.org"}, "HTTP/1.0"},
		{"nginx", "/graphql", "127.0.0.1:8080", "HTTP/1.0", nil, "nginx"},
		{"a foreign name", "/graphql", "pool.example.org", "HTTP/1.1", nil, "pool.example.org"},
		{"a foreign address", "/", "192.0.2.1:8080", "HTTP/1.1", nil, "192.0.2.1"},
		{"a name that begins like loopback", "/", "localhost.example.org", "HTTP/1.1", nil, "localhost.example.org"},
		{"Caddy", "/", "localhost", "HTTP/1.1", header{"X-Forwarded-For": "192.0.2.1"}, "X-Forwarded-For"},
		{"an empty header", "/", "localhost", "HTTP/1.1", header{"x-forwarded-host": ""}, "X-Forwarded-Host"},
		{"RFC 7239", "/outputs/x", "localhost", "HTTP/1.1", header{"Forwarded": "for=192.0.2.1"}, "Forwarded"},
		{"Via", "/jobe/index.php/restapi/languages", "localhost", "HTTP/1.1", header{"via": "1.1 squid"}, "Via"},
		{"X-Real-IP", "/metrics", "localhost", "HTTP/1.1", header{"X-Real-IP": "192.0.2.1"}, "X-Real-Ip"},
		{"Cloudflare", "/mcp", "localhost", "HTTP/1.1", header{"CF-Connecting-IP": "192.0.2.1", "CF-RAY": "x"}, "Cf-"},
		{"Tailscale", "/health/live", "localhost", "HTTP/1.1", header{"Tailscale-User-Login": "a"}, "Tailscale-"},
	} {
		for _, open := range []bool{true, false} {
			r := httptest.NewRequest(http.MethodPost, test.path, nil)
			r.Host, r.Proto = test.host, test.proto
			r.ProtoMajor, r.ProtoMinor, _ = http.ParseHTTPVersion(test.proto)
			for name, value := range test.header {
				r.Header.Set(name, value)
			}
			core, logs := observer.New(zap.WarnLevel)
			gate := &Gate{Open: func() bool { return open }, Logger: zap.New(core)}
			for range 2 {
				refused := gate.checkProxied(r)
				if wanted := test.sign != "" && open; (refused != nil) != wanted {
					t.Errorf("%s, no token required: %t: %v", test.name, open, refused)
				} else if wanted && (!strings.Contains(refused.Message, test.sign) || !strings.Contains(refused.Message, "rockpool token create") || logs.Len() != 1) {
					t.Errorf("%s: refused with %s, %d lines are logged", test.name, refused.Message, logs.Len())
				}
			}
		}
	}
}
