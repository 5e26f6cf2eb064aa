// Package gate checks a request's Host, Origin and credential before its body is read. CheckHost
// and CheckOrigin are for all requests of the API, RefuseProxied for all of the server, Admission for the
// API and the metrics.
package gate

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/rockpool/rockpool/graph/presenter"
	"github.com/rockpool/rockpool/runtime"
)

// CheckHost refuses requests for a name that isn't this server's. A page whose name an attacker
// pointed at this address (DNS rebinding) sends its own name. Browsers always send Host. Programs may
// omit it in HTTP/1.0. Such a request gets the name of the address that it came to.
func CheckHost(allowed []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if here, known := r.Context().Value(http.LocalAddrContextKey).(net.Addr); known && nameless(r) {
			r = r.WithContext(r.Context()) // a copy
			r.Host = here.String()
			next.ServeHTTP(w, r)
			return
		}
		if name := hostName(r.Host); !slices.ContainsFunc(allowed, func(a string) bool { return strings.EqualFold(a, name) }) {
			presenter.RefuseTyped(w, http.StatusForbidden, runtime.Errorf(runtime.CodeForbidden,
				"this server doesn't accept the host name %q: use another name, or allow it with --allowed-hosts", name))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// nameless reports whether a program sent a request without the header Host, which HTTP/1.0 allows.
func nameless(r *http.Request) bool {
	return r.Host == "" && !r.ProtoAtLeast(1, 1) && r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == ""
}

// hostName returns a Host header without its port and brackets.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

// CheckOrigin refuses requests that a browser sends for a page of another site, on every transport.
// Programs send no Origin. A browser sends none with a GET for a link or an image, but
// Sec-Fetch-Site then has the page's relation to this server.
func CheckOrigin(allowed []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		if origin != "" && !sameOrigin(origin, r.Host) && !AllowedOrigin(allowed, origin) {
			presenter.RefuseTyped(w, http.StatusForbidden, runtime.Errorf(runtime.CodeForbidden,
				"requests from pages of %q aren't allowed: allow that origin with --allowed-origins", origin))
			return
		}
		if site := r.Header.Get("Sec-Fetch-Site"); origin == "" && site != "" && site != "same-origin" && site != "none" && r.URL.Path != "/" {
			presenter.RefuseTyped(w, http.StatusForbidden, runtime.Errorf(runtime.CodeForbidden, "requests from pages of another site aren't allowed"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// sameOrigin reports whether an origin has this host. The schemes may differ, because a proxy may
// end TLS.
func sameOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && strings.EqualFold(u.Host, host)
}

// AllowedOrigin reports whether origin is one of the allowed.
func AllowedOrigin(allowed []string, origin string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool { return strings.EqualFold(a, origin) })
}
