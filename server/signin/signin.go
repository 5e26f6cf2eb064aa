// Package signin signs people in to the dashboard with OpenID Connect: the authorization
// code flow with PKCE, state and nonce. It serves /auth/login, /auth/callback, /auth/logout
// and /auth/provider, and extracts the session secret from requests.
//
// It guarantees:
//
//   - A session begins only with an ID token that the provider signed for this client and this
//     attempt, and whose claims have a role and a tenant.
//   - An attempt can be completed once, within ten minutes, and only in the browser in which it started.
//   - Each sign-in creates a new session and ends the browser's previous one.
//   - No page of another origin can use a session (see Secret).
//   - Redirects go only to the provider's and the server's own origin.
//   - No page and no log line contains a token, a code or a secret.
package signin

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/timing"
)

// An Identity is a signed-in person with their role, tenant and the time at which the session expires.
type Identity struct {
	Subject string // the person's id at the provider
	Name    string // for people to read; not unique
	Tenant  runtime.TenantID
	Role    access.Role // from Options.Roles
	Expires time.Time
	Address string // client address of the sign-in
}

// Sessions stores sessions. Its methods must be safe for concurrent use.
type Sessions interface {
	// Begin begins a session and returns its secret, which is new, unguessable and valid as the
	// value of a cookie. It returns ErrUnknownTenant if the tenant doesn't exist.
	Begin(ctx context.Context, who Identity) (secret string, err error)
	// End ends the session with this secret. It returns nil if there is none.
	End(ctx context.Context, secret string) error
}

// ErrUnknownTenant is returned by Sessions for a tenant that doesn't exist.
var ErrUnknownTenant = errors.New("the tenant doesn't exist")

// A Rule gives a role to people whose role claim has the value.
type Rule struct {
	Value string
	Role  access.Role
}

// Options has the settings of the sign-in. The server's configuration has checked them.
type Options struct {
	Issuer       string // "" means no sign-in
	ClientID     string
	ClientSecret string // "" means a public client
	RedirectURL  string // URL of /auth/callback for browsers
	Scopes       []string
	RoleClaim    string
	Roles        []Rule // the first matching rule applies
	TenantClaim  string // if it is "", everybody gets the default tenant
	Lifetime     time.Duration
	CA           []byte // authorities to trust in addition to the system's, in PEM, or nil

	Sessions Sessions
	Address  func(r *http.Request) string // returns the client's address; nil means that of the connection
	Logger   *zap.Logger
}

// A SignIn serves /auth/. Its methods are safe for concurrent use.
type SignIn struct {
	options  Options
	origin   string // of the server, for browsers
	secure   bool   // whether origin is https
	provider *provider
	attempts *attempts
	clock    timing.Clock // of the attempts
	refusals *zap.Logger  // logs problems, rate-limited because anybody can cause them
	mux      *http.ServeMux
}

// mostRefusals is the maximum number of logged problems of a kind per second.
const mostRefusals = 10

// New returns the sign-in of a server. It doesn't contact the provider before the first sign-in.
func New(options Options) *SignIn {
	if options.Address == nil {
		options.Address = peerAddress
	}
	if options.Logger == nil {
		options.Logger = zap.NewNop()
	}
	s := &SignIn{options: options, attempts: newAttempts(), clock: timing.NewClock(), mux: http.NewServeMux()}
	s.refusals = options.Logger.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Second, mostRefusals, 0)
	}))
	s.mux.HandleFunc("GET /auth/provider", s.configured)
	if options.Issuer == "" {
		s.mux.HandleFunc("/auth/", s.unconfigured)
		return s
	}
	s.origin, s.secure = originOf(options.RedirectURL)
	s.provider = newProvider(options)
	s.mux.HandleFunc("GET /auth/login", s.login)
	s.mux.HandleFunc("GET /auth/callback", s.callback)
	s.mux.HandleFunc("POST /auth/logout", s.logout)
	return s
}

// ServeHTTP serves everything below /auth/. /auth/callback also accepts navigations from other
// sites, since the provider redirects to it.
func (s *SignIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	header.Set("Referrer-Policy", "no-referrer") // the callback's URL contains the code
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	s.mux.ServeHTTP(w, r)
}

// configured reports to the dashboard whether sign-in is configured. The API's `me` has the signed-in person.
func (s *SignIn) configured(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_, _ = fmt.Fprintf(w, `{"configured":%t}`, s.options.Issuer != "") // an error means that the client is gone
}

// login redirects the browser to the provider.
func (s *SignIn) login(w http.ResponseWriter, r *http.Request) {
	back := localPath(r.URL.Query().Get("return"))
	provider, err := s.provider.discover()
	if err != nil {
		s.refuse(w, r, unavailable(back, err))
		return
	}
	attempt := newAttempt(back, s.clock.Now())
	sealed, err := s.attempts.seal(attempt)
	if err != nil {
		s.refuse(w, r, internal(back, err))
		return
	}
	// The cookie ties the callback to this browser.
	http.SetCookie(w, s.cookie(attemptCookie, sealed, attemptLifetime))
	redirect(w, provider.authorize(attempt))
}

// logout ends the browser's session. Only a page of this server may request it.
func (s *SignIn) logout(w http.ResponseWriter, r *http.Request) {
	if !s.ownPage(r) {
		http.Error(w, "only a page of this server can sign out", http.StatusForbidden)
		return
	}
	if secret, sent := s.sent(r); sent {
		if err := s.options.Sessions.End(r.Context(), secret); err != nil {
			// The cookie stays, so that the user can try again.
			s.options.Logger.Error("ending a session failed", zap.Error(err))
			http.Error(w, "the server can't end your session now, so you are still signed in: try again", http.StatusServiceUnavailable)
			return
		}
	}
	http.SetCookie(w, s.cookie(sessionCookie, "", -1))
	http.SetCookie(w, s.cookie(attemptCookie, "", -1))
	w.WriteHeader(http.StatusNoContent)
}

// redirect redirects a browser to a URL that this package created or checked.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// localPath returns the path to return to after the sign-in: the given one, unless a browser could
// interpret it as another server's address; then "/".
func localPath(path string) string {
	odd := strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' })
	if odd || len(path) > 1024 || !strings.HasPrefix(path, "/") || strings.Contains(path, "//") || strings.HasPrefix(path, "/auth/") {
		return "/"
	}
	return path
}

// originOf returns the origin of a URL as browsers write it, and whether it is https.
func originOf(address string) (origin string, secure bool) {
	u, err := url.Parse(address)
	if err != nil {
		return "", false
	}
	host := strings.ToLower(u.Host)
	secure = u.Scheme == "https"
	if secure {
		host = strings.TrimSuffix(host, ":443")
	} else {
		host = strings.TrimSuffix(host, ":80")
	}
	return u.Scheme + "://" + host, secure
}

// peerAddress returns the address of a request's connection, without the port.
func peerAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// A problem is the reason why a sign-in failed. title and text are for the person, cause is for the log.
type problem struct {
	status      int
	title, text string
	back        string // path to return to after the sign-in
	cause       error
	subject     string // the person's id at the provider, or ""
}

// foreign returns the problem of a callback that doesn't belong to an attempt of this browser.
func (s *SignIn) foreign(cause error) *problem {
	return &problem{
		status: http.StatusBadRequest, title: "This sign-in wasn't started in this browser", back: "/", cause: cause,
		text: "It was already used, took longer than ten minutes, or was started in another browser. Or another tab has started a newer one, or the server was restarted. Sign in again. If it fails again, open this server as " + s.origin + " and allow its cookies.",
	}
}

// unproven returns the problem of a response that doesn't prove the person's identity.
func unproven(back string, cause error) *problem {
	return &problem{
		status: http.StatusForbidden, title: "The provider's response was refused", back: back, cause: cause,
		text: "It doesn't prove who you are. Sign in again. If it fails again, the server's log says why.",
	}
}

// unavailable returns the problem of an unreachable provider.
func unavailable(back string, cause error) *problem {
	return &problem{
		status: http.StatusServiceUnavailable, title: "The provider can't be reached", back: back, cause: cause,
		text: "Try again in a few seconds. If it keeps failing, an administrator can find the reason in the server's log, and should check that the provider runs and that --oidc-issuer is its URL. Tokens of this server still work.",
	}
}

// internal returns the problem of a server that can't store a session.
func internal(back string, cause error) *problem {
	return &problem{
		status: http.StatusServiceUnavailable, title: "The server can't sign you in now", back: back, cause: cause,
		text: "Try again in a few seconds. The server's log says why.",
	}
}

// page is the page about a problem. html/template escapes its values.
var page = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{{.Title}} – Rockpool</title></head>
<body>
<h1>{{.Title}}</h1>
<p>{{.Text}}</p>
<p>{{if .Login}}<a href="{{.Login}}">Sign in again</a> · {{end}}<a href="/">To the dashboard</a></p>
</body>
</html>
`))

// refuse logs a problem and responds with its page.
func (s *SignIn) refuse(w http.ResponseWriter, r *http.Request, p *problem) {
	cause := p.cause.Error()
	s.refusals.Warn("sign-in refused", zap.Int("status", p.status), zap.String("cause", cause[:min(len(cause), 500)]), zap.String("subject", p.subject), zap.String("address", s.options.Address(r)))
	if p.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	show(w, p.status, p.title, p.text, "/auth/login?"+url.Values{"return": {p.back}}.Encode())
}

// unconfigured responds to all paths if the settings have no provider.
func (s *SignIn) unconfigured(w http.ResponseWriter, _ *http.Request) {
	show(w, http.StatusNotFound, "This server has no sign-in", "Use a token. An administrator sets --oidc-issuer to let people sign in.", "")
}

// show responds with the page. Without login, the page has no link to sign in.
func show(w http.ResponseWriter, status int, title, text, login string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = page.Execute(w, struct{ Title, Text, Login string }{title, text, login}) // an error means that the client is gone
}
