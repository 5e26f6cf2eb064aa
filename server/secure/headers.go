package secure

import (
	"net/http"
	"net/netip"
	"strings"
)

// policy forbids browsers everything. It is for responses that aren't pages; pages set their own policies.
const policy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// transport makes browsers use only TLS, for a year.
const transport = "max-age=31536000"

// Headers returns a handler that adds headers to each response of next. They restrict browsers, and
// next may replace them. encrypted reports whether a request used TLS to this server or to its
// proxy. If so, browsers must use only TLS afterwards. Loopback names are an exception, because the
// rule would also apply to servers on all other ports.
func Headers(encrypted func(r *http.Request) bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Content-Security-Policy", policy)
		if encrypted(r) && !onMachine(r.Host) {
			header.Set("Strict-Transport-Security", transport)
		}
		next.ServeHTTP(w, r)
	})
}

// onMachine reports whether a Host header names a loopback address or localhost.
func onMachine(host string) bool {
	if address, err := netip.ParseAddrPort(host); err == nil {
		return address.Addr().IsLoopback()
	}
	if address, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return address.IsLoopback()
	}
	name, _, _ := strings.Cut(host, ":")
	return strings.EqualFold(name, "localhost") || strings.HasSuffix(strings.ToLower(name), ".localhost")
}
