package secure

import (
	"net/http"
	"net/netip"
	"strings"
)

// What browsers may do with answers that aren't pages: nothing. Pages have policies of their
// own.
const policy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// transport makes browsers use only TLS, for a year.
const transport = "max-age=31536000"

// Headers sets the headers that restrict browsers on each answer of next, which may replace
// them. Encrypted reports whether a client's request came by TLS, to this server or to its
// proxy. Then browsers use only TLS from now on, except for names of this machine: there the
// rule would hold for the servers on all other ports.
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

// onMachine reports whether a Host header names loopback.
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
