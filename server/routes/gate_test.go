package routes

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestHeadersRestrictBrowsers(t *testing.T) {
	for _, test := range []struct {
		host              string
		encrypted, strict bool
	}{
		{"pool.example.org", true, true}, {"pool.example.org:8443", true, true}, {"192.0.2.1:443", true, true}, {"pool.example.org", false, false},
		{"localhost", true, false}, {"LOCALHOST:8443", true, false}, {"a.localhost:1", true, false}, {"127.0.0.1:8443", true, false}, {"[::1]:8443", true, false}, {"[::1]", true, false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = test.host
		w := httptest.NewRecorder()
		if test.encrypted {
			r.TLS = new(tls.ConnectionState)
		}
		(&Gate{Open: func() bool { return false }, Next: http.NotFoundHandler()}).ServeHTTP(w, r)
		h := w.Header()
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("Content-Security-Policy") != policy {
			t.Errorf("%+v: %v", test, h)
		}
		if (h.Get("Strict-Transport-Security") != "") != test.strict {
			t.Errorf("%+v: %v", test, h)
		}
	}
}
