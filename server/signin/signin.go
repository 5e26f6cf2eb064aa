// Package signin signs people in to the dashboard with OpenID Connect: the authorization
// code flow with PKCE, state and nonce. It serves /auth/login, /auth/callback, /auth/logout
// and /auth/provider, and finds the secret of a request's session.
//
// It guarantees that
//
//   - a session begins only with an ID token that the provider signed for this client and for this
//     very attempt, and whose claims have a role and a tenant;
//   - an attempt ends in the browser in which it began, once, within ten minutes;
//   - each sign-in has a session of its own, and ends the one that the browser had before;
//   - no page of another origin can use a session (Secret);
//   - nobody is sent to another origin than the provider's and the server's own;
//   - no page and no line of the log has a token, a code or a secret.
package signin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

// An Identity is a person who signed in, and what they may do for how long.
type Identity struct {
	Subject string // the provider's own id of the person
	Name    string // for people to read; it identifies nobody
	Tenant  runtime.TenantID
	Role    access.Role // of Options.Roles
	Expires time.Time
	Address string // that the sign-in came from
}

// Sessions stores who is signed in. Its methods may be called at once.
type Sessions interface {
	// Begin begins a session and returns its secret, which is new, can't be guessed and
	// can be the value of a cookie. It returns ErrUnknownTenant if there is no such tenant.
	Begin(ctx context.Context, who Identity) (secret string, err error)
	// End ends a session. It returns nil if there is none.
	End(ctx context.Context, secret string) error
}

// ErrUnknownTenant is returned by Sessions for a tenant that doesn't exist.
var ErrUnknownTenant = errors.New("there is no such tenant")

// A Rule gives a role to those whose claim has a value.
type Rule struct {
	Value string
	Role  access.Role
}

// Options say how people sign in. All of them were checked with the server's settings.
type Options struct {
	Issuer       string // "": there is no sign-in
	ClientID     string
	ClientSecret string // "": the client is a public one
	RedirectURL  string // of /auth/callback, as browsers reach it
	Scopes       []string
	RoleClaim    string
	Roles        []Rule // the first that matches holds
	TenantClaim  string // "": all are in the default tenant
	Lifetime     time.Duration
	CA           []byte // certificates in PEM beside the machine's; nil: none

	Sessions Sessions
	Address  func(r *http.Request) string // of the client; nil: the connection's
	Logger   *zap.Logger
}

// A SignIn serves /auth/. Its methods may be called at once.
type SignIn struct {
	options  Options
	origin   string // of the server, as browsers see it
	secure   bool   // whether that is https
	provider *provider
	attempts *attempts
	refusals *zap.Logger // of problems, a few of each kind a second: anybody can cause them
	mux      *http.ServeMux
}

// mostRefusals is how many problems are logged in a second.
const mostRefusals = 10

// New returns the sign-in of a server. It asks the provider for nothing until somebody signs in.
func New(options Options) *SignIn {
	if options.Address == nil {
		options.Address = peerAddress
	}
	if options.Logger == nil {
		options.Logger = zap.NewNop()
	}
	s := &SignIn{options: options, attempts: newAttempts(), mux: http.NewServeMux()}
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

// ServeHTTP serves everything below /auth/. /auth/callback answers requests that pages of another
// site lead to, as the provider's do.
func (s *SignIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	header.Set("Referrer-Policy", "no-referrer") // the callback's address has the code
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	s.mux.ServeHTTP(w, r)
}

// configured tells the dashboard whether people can sign in. Who did is the API's `me`.
func (s *SignIn) configured(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_, _ = fmt.Fprintf(w, `{"configured":%t}`, s.options.Issuer != "") // a client that left needs no answer
}

// login sends the browser to the provider.
func (s *SignIn) login(w http.ResponseWriter, r *http.Request) {
	back := localPath(r.URL.Query().Get("return"))
	provider, err := s.provider.discover()
	if err != nil {
		s.refuse(w, r, unavailable(back, err))
		return
	}
	attempt := newAttempt(back, time.Now())
	sealed, err := s.attempts.seal(attempt)
	if err != nil {
		s.refuse(w, r, internal(back, err))
		return
	}
	http.SetCookie(w, s.cookie(attemptCookie, sealed, attemptLifetime))
	redirect(w, provider.authorize(attempt))
}

// logout ends the session of the browser, whose page must be the server's own.
func (s *SignIn) logout(w http.ResponseWriter, r *http.Request) {
	if !s.ownPage(r) {
		http.Error(w, "only a page of this server can sign out", http.StatusForbidden)
		return
	}
	if secret, sent := s.sent(r); sent {
		if err := s.options.Sessions.End(r.Context(), secret); err != nil {
			// The cookie stays, so that it can be tried again.
			s.options.Logger.Error("end a session", zap.Error(err))
			http.Error(w, "you are still signed in, because the server can't end your session now: try again", http.StatusServiceUnavailable)
			return
		}
	}
	http.SetCookie(w, s.cookie(sessionCookie, "", -1))
	http.SetCookie(w, s.cookie(attemptCookie, "", -1))
	w.WriteHeader(http.StatusNoContent)
}

// redirect sends a browser to a URL that was made or checked here.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// localPath returns a path of this server to return to after the sign-in: the given one if no browser
// could take it for another server's, else "/".
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

func peerAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
