package signin

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// public returns the sign-in of a server that browsers reach at an origin.
func public(origin string) *SignIn {
	return New(Options{Issuer: "https://login.example.org", RedirectURL: origin + "/auth/callback", Lifetime: time.Hour, Sessions: &memory{open: map[string]Identity{}}})
}

func TestOnlyOwnPagesUseASession(t *testing.T) {
	const own = "https://pool.example.org"
	for _, test := range []struct {
		name    string
		method  string
		headers string
		found   bool
	}{
		{"a page's fetch", "POST", "Sec-Fetch-Site: same-origin; Origin: " + own, true},
		{"a page's GET, without an Origin", "GET", "Sec-Fetch-Site: same-origin", true},
		{"an old browser", "POST", "Origin: " + own, true},
		{"an address that was typed", "GET", "Sec-Fetch-Site: none; Sec-Fetch-Mode: navigate", true},
		{"the same, without its body", "HEAD", "Sec-Fetch-Site: none; Sec-Fetch-Mode: navigate", true},
		{"a WebSocket", "GET", "Upgrade: websocket; Connection: Upgrade; Origin: " + own, true},
		{"another site's form", "POST", "Sec-Fetch-Site: cross-site; Origin: https://evil.example.net", false},
		{"another site's link", "GET", "Sec-Fetch-Site: cross-site; Sec-Fetch-Mode: navigate", false},
		{"another host of the site", "POST", "Sec-Fetch-Site: same-site; Origin: https://evil.example.org", false},
		{"another host's GET", "GET", "Sec-Fetch-Site: same-site", false},
		{"another port", "POST", "Origin: " + own + ":8443", false},
		{"http", "POST", "Origin: http://pool.example.org", false},
		{"a name that begins like ours", "POST", "Origin: " + own + ".evil.example.net", false},
		{"no page", "POST", "Origin: null", false},
		{"neither", "POST", "", false},
		{"neither, GET", "GET", "", false},
		{"a POST of no page", "POST", "Sec-Fetch-Site: none; Sec-Fetch-Mode: navigate", false},
		{"no navigation", "GET", "Sec-Fetch-Site: none; Sec-Fetch-Mode: cors", false},
		{"an unknown site", "GET", "Sec-Fetch-Site: other", false},
		{"an Origin that contradicts", "POST", "Sec-Fetch-Site: same-origin; Origin: https://evil.example.net", false},
		{"a site that contradicts", "POST", "Sec-Fetch-Site: cross-site; Origin: " + own, false},
		{"two Origins", "POST", "Origin: " + own + "; Origin: https://evil.example.net", false},
		{"two sites", "POST", "Sec-Fetch-Site: same-origin; Sec-Fetch-Site: cross-site", false},
		{"another site's WebSocket", "GET", "Upgrade: websocket; Connection: Upgrade; Origin: https://evil.example.net; Sec-Fetch-Site: cross-site", false},
		{"a WebSocket without an Origin", "GET", "Upgrade: h2c, WebSocket; Connection: Upgrade; Sec-Fetch-Site: same-origin", false},
		{"a WebSocket by HTTP/2", "CONNECT", "Sec-Fetch-Site: same-origin", false},
		{"no page's WebSocket", "GET", "Upgrade: websocket; Connection: Upgrade; Origin: null", false},
	} {
		r := httptest.NewRequestWithContext(t.Context(), test.method, "https://another-name/graphql", nil)
		for header := range strings.SplitSeq(test.headers, "; ") {
			if name, value, has := strings.Cut(header, ": "); has {
				r.Header.Add(name, value)
			}
		}
		r.Header.Set("Cookie", "__Host-rockpool=secret; rockpool=planted")
		secret, found := public(own).Secret(r)
		if found != test.found || found && secret != "secret" {
			t.Errorf("%s: %q %v", test.name, secret, found)
		}

		// Signing out requires the same, and a POST.
		s := public(own)
		sessions := s.options.Sessions.(*memory)
		sessions.open["secret"] = Identity{}
		r.URL.Path, r.Method = "/auth/logout", http.MethodPost
		answer := httptest.NewRecorder()
		s.ServeHTTP(answer, r)
		if ended := sessions.count() == 0; test.method == http.MethodPost && ended != test.found || ended != (answer.Code == http.StatusNoContent) {
			t.Errorf("%s: signing out: %d, ended: %v", test.name, answer.Code, ended)
		}
	}
}

func TestSigningOutIsAPost(t *testing.T) {
	s := public("https://pool.example.org")
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
		r := httptest.NewRequestWithContext(t.Context(), method, "/auth/logout", nil)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		answer := httptest.NewRecorder()
		if s.ServeHTTP(answer, r); answer.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: got %d, want %d", method, answer.Code, http.StatusMethodNotAllowed)
		}
	}
}

func TestCookiesAreOnlyForThisHost(t *testing.T) {
	for _, test := range []struct{ origin, cookies, secret string }{
		{"https://pool.example.org", "__Host-rockpool=a", "a"},
		{"https://pool.example.org", "rockpool=a", ""},
		{"https://pool.example.org", "__Host-rockpool=a; __Host-rockpool=b", ""},
		{"https://pool.example.org", "__Host-rockpool=", ""},
		{"https://pool.example.org", "", ""},
		{"http://127.0.0.1:8080", "rockpool=a", "a"},
		{"http://127.0.0.1:8080", "__Host-rockpool=a", ""},
		{"http://127.0.0.1:8080", "rockpool=a; rockpool=b", ""},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/graphql", nil)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.Header.Set("Cookie", test.cookies)
		if secret, found := public(test.origin).Secret(r); secret != test.secret || found != (test.secret != "") {
			t.Errorf("%s, %q: %q", test.origin, test.cookies, secret)
		}
	}
	for origin, want := range map[string]string{
		"https://pool.example.org": "__Host-rockpool=x; Path=/; Max-Age=3600; HttpOnly; Secure; SameSite=Lax",
		"http://127.0.0.1:8080":    "rockpool=x; Path=/; Max-Age=3600; HttpOnly; SameSite=Lax",
	} {
		if got := public(origin).cookie(sessionCookie, "x", time.Hour).String(); got != want {
			t.Errorf("%s: got %s, want %s", origin, got, want)
		}
		if got := public(origin).cookie(sessionCookie, "", -1).String(); !strings.Contains(got, "Max-Age=0") {
			t.Errorf("%s: %s", origin, got)
		}
	}
}

func TestOriginHasTheFormatOfBrowsers(t *testing.T) {
	for address, want := range map[string]string{
		"https://Pool.Example.org/auth/callback":      "https://pool.example.org",
		"https://pool.example.org:443/auth/callback":  "https://pool.example.org",
		"https://pool.example.org:8443/auth/callback": "https://pool.example.org:8443",
		"http://127.0.0.1:80/auth/callback":           "http://127.0.0.1",
		"http://[::1]:8080/auth/callback":             "http://[::1]:8080",
	} {
		if got, secure := originOf(address); got != want || secure != strings.HasPrefix(want, "https") {
			t.Errorf("%s: %s %v", address, got, secure)
		}
	}
}

// TestProviderOfAPrivateAuthority has a certificate of an authority in the settings, which other
// certificates don't have.
func TestProviderOfAPrivateAuthority(t *testing.T) {
	f := newFake(t, httptest.NewTLSServer)
	f.Config.ErrorLog = nil
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})
	ask := func(ca []byte) error {
		_, err := newProvider(Options{Issuer: f.URL, ClientID: fakeClient, CA: ca}).discover()
		return err
	}
	if err := ask(ca); err != nil {
		t.Error(err)
	}
	if err := ask(nil); !errors.As(err, new(x509.UnknownAuthorityError)) {
		t.Errorf("a certificate of an unknown authority: got %v", err)
	}
}

func TestProvidersDocumentIsChecked(t *testing.T) {
	for name, test := range map[string]struct{ document, cause string }{
		"another issuer": {`{"issuer":"https://evil.example.org"}`, "issuer"},
		"no endpoints":   {`{"issuer":"ISSUER"}`, "URL of a host"},
		"a script": {`{"issuer":"ISSUER","authorization_endpoint":"javascript:alert(1)","token_endpoint":"ISSUER/t","jwks_uri":"ISSUER/k"}`,
			"authorization_endpoint isn't"},
		"a file":     {`{"issuer":"ISSUER","authorization_endpoint":"ISSUER/a","token_endpoint":"ISSUER/t","jwks_uri":"file:///etc/passwd"}`, "jwks_uri isn't"},
		"no JSON":    {`<html>`, "decode"},
		"no end":     {`{"issuer":"ISSUER","authorization_endpoint":"ISSUER/a","token_endpoint":"ISSUER/t","jwks_uri":"ISSUER/k","x":"` + strings.Repeat("x", mostAnswer) + `"}`, "decode"},
		"elsewhere":  {"", "307"},
		"everything": {`{"issuer":"ISSUER","authorization_endpoint":"ISSUER/a","token_endpoint":"ISSUER/t","jwks_uri":"ISSUER/k"}`, ""},
	} {
		var issuer string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if test.document == "" {
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(http.StatusTemporaryRedirect)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(bytes.ReplaceAll([]byte(test.document), []byte("ISSUER"), []byte(issuer)))
		}))
		issuer = server.URL
		_, err := newProvider(Options{Issuer: issuer, ClientID: fakeClient}).discover()
		if (err == nil) != (test.cause == "") || err != nil && !strings.Contains(err.Error(), test.cause) {
			t.Errorf("%s: %.300v", name, err)
		}
		server.Close()
	}
}

func TestConcurrentSignInsAreLimited(t *testing.T) {
	f := newFake(t, httptest.NewServer)
	p := newProvider(Options{Issuer: f.URL, ClientID: fakeClient, ClientSecret: fakeSecret})
	for range mostAtOnce {
		p.slots <- struct{}{}
	}
	if _, err := p.redeem(context.Background(), newAttempt("/", time.Now()), "x"); err != errBusy {
		t.Errorf("one more than may: got %v, want %v", err, errBusy)
	}
	<-p.slots
	if _, err := p.redeem(context.Background(), newAttempt("/", time.Now()), "x"); err == errBusy || err == nil {
		t.Errorf("a wrong code: %v", err)
	}
}
