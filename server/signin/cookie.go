package signin

import (
	"net/http"
	"strings"
	"time"
)

// Names of cookies. With https they begin with "__Host-": browsers accept such a cookie only from
// this host, over https and for the path /.
const (
	sessionCookie = "rockpool"
	attemptCookie = "rockpool-signin"
)

// cookieName returns the full name of a cookie, with the prefix if the server has https.
func (s *SignIn) cookieName(name string) string {
	if s.secure {
		return "__Host-" + name
	}
	return name
}

// cookie returns a cookie with a lifetime. A negative lifetime deletes the cookie.
//
// SameSite is Lax, because the provider's site starts the navigation to the callback. With Strict,
// the browser wouldn't send the attempt, which the sign-in needs, nor the earlier session, which
// the callback ends. ownPage protects against pages of other sites, for every method.
func (s *SignIn) cookie(name, value string, lifetime time.Duration) *http.Cookie {
	c := &http.Cookie{
		Name: s.cookieName(name), Value: value, Path: "/", Secure: s.secure, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		MaxAge: int(lifetime / time.Second),
	}
	if lifetime < 0 {
		c.MaxAge = -1
	}
	return c
}

// Secret returns the session secret in a request's cookie, but only if a page of this server sent
// the request:
//
//   - a WebSocket if its Origin is the server's;
//   - any other request if its Sec-Fetch-Site is same-origin, or it has none and its Origin is the server's;
//   - a GET or HEAD also if the person opened the address, as from a bookmark (Sec-Fetch-Site none).
//
// The server's origin is that of Options.RedirectURL, whatever the Host header says. If there are
// two cookies with the name, both are ignored: one of them could be from another host. A nil SignIn
// finds no secret.
func (s *SignIn) Secret(r *http.Request) (secret string, found bool) {
	if s == nil || !s.ownPage(r) {
		return "", false
	}
	return s.sent(r)
}

// sent returns the secret in the cookie. It doesn't check which page caused the request.
func (s *SignIn) sent(r *http.Request) (secret string, found bool) {
	return s.value(r, sessionCookie)
}

// value returns the value of a request's cookie. Two cookies with the name count as none.
func (s *SignIn) value(r *http.Request, name string) (value string, found bool) {
	if s.options.Issuer == "" {
		return "", false
	}
	cookies := r.CookiesNamed(s.cookieName(name))
	if len(cookies) != 1 || cookies[0].Value == "" {
		return "", false
	}
	return cookies[0].Value, true
}

// ownPage reports whether a page of this server, or the user directly, sent a request.
func (s *SignIn) ownPage(r *http.Request) bool {
	origins, sites := r.Header.Values("Origin"), r.Header.Values("Sec-Fetch-Site")
	if s.origin == "" || len(origins) > 1 || len(sites) > 1 {
		return false
	}
	origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	if isWebSocket(r) {
		return origin == s.origin
	}
	if origin != "" && origin != s.origin {
		return false
	}
	switch site {
	case "same-origin":
		return true
	case "none":
		return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Sec-Fetch-Mode") == "navigate"
	case "":
		return origin != ""
	default:
		return false
	}
}

// isWebSocket reports whether a request opens a WebSocket, over HTTP/1 or HTTP/2.
func isWebSocket(r *http.Request) bool {
	if r.Method == http.MethodConnect {
		return true
	}
	for _, line := range r.Header.Values("Upgrade") {
		for protocol := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(protocol), "websocket") {
				return true
			}
		}
	}
	return false
}
