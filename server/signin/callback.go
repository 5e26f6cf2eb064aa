package signin

import (
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// callback completes an attempt. The provider redirects the browser to it.
func (s *SignIn) callback(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	attempt, problem := s.attempt(r, query)
	if problem != nil {
		s.refuse(w, r, problem)
		return
	}
	// The attempt is used, whatever follows, so its cookie is deleted.
	http.SetCookie(w, s.cookie(attemptCookie, "", -1))
	who, problem := s.identify(r, query, attempt)
	if problem != nil {
		s.refuse(w, r, problem)
		return
	}
	secret, problem := s.begin(r, who, attempt.Return)
	if problem != nil {
		s.refuse(w, r, problem)
		return
	}
	s.options.Logger.Info("user signed in", zap.String("subject", who.Subject), zap.String("role", string(who.Role)), zap.Stringer("tenant", who.Tenant), zap.String("address", who.Address))
	http.SetCookie(w, s.cookie(sessionCookie, secret, s.options.Lifetime))
	redirect(w, attempt.Return)
}

// attempt returns the attempt of a callback and marks it as used.
func (s *SignIn) attempt(r *http.Request, query url.Values) (attempt, *problem) {
	sealed, _ := s.value(r, attemptCookie)
	attempt, err := s.attempts.open(sealed, s.clock.Now())
	if err != nil {
		return attempt, s.foreign(err)
	}
	// RFC 6749, 10.12: the state ties the response to the browser that started the attempt.
	if subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(attempt.State)) != 1 {
		return attempt, s.foreign(errors.New("the state belongs to another attempt"))
	}
	if !s.attempts.use(attempt.State, s.clock.Now()) {
		return attempt, s.foreign(errors.New("the attempt was used before"))
	}
	return attempt, nil
}

// errorCodes matches the provider's error codes that may be shown and logged.
var errorCodes = regexp.MustCompile(`^[a-z_]{1,40}$`)

// identify returns the person that the provider names, with the role and the tenant that the settings give.
func (s *SignIn) identify(r *http.Request, query url.Values, attempt attempt) (Identity, *problem) {
	if code := query.Get("error"); code != "" {
		if !errorCodes.MatchString(code) {
			code = "unknown"
		}
		return Identity{}, &problem{
			status: http.StatusForbidden, title: "The provider didn't sign you in", back: attempt.Return,
			text: "The provider returned the error " + code + ". Sign in again, or ask the provider's administrator.", cause: errors.New("the provider returned the error " + code),
		}
	}
	// RFC 9207: the issuer of the response. With a single provider it is optional.
	if issuer := query.Get("iss"); issuer != "" && issuer != s.options.Issuer {
		return Identity{}, unproven(attempt.Return, errors.New("the response is from another issuer"))
	}
	claims, err := s.provider.redeem(r.Context(), attempt, query.Get("code"))
	if errors.As(err, new(refusedToken)) {
		return Identity{}, unproven(attempt.Return, err)
	}
	if err != nil {
		return Identity{}, unavailable(attempt.Return, err)
	}
	who := Identity{
		Name: name(claims), Role: role(s.options.Roles, values(claims, s.options.RoleClaim)), Expires: time.Now().Add(s.options.Lifetime), Address: s.options.Address(r),
	}
	who.Subject, _ = claims["sub"].(string)
	if who.Role == "" {
		return Identity{}, &problem{
			status: http.StatusForbidden, title: "You have no role on this server", back: attempt.Return,
			text:  "You are signed in as " + who.Name + " at the provider, but none of your groups has a role here. Ask an administrator for a role, or sign in as another user.",
			cause: errors.New("no value of the role claim has a role"), subject: who.Subject,
		}
	}
	if s.options.TenantClaim != "" {
		var named bool
		if who.Tenant, named = tenant(values(claims, s.options.TenantClaim)); !named {
			return Identity{}, noTenant(attempt.Return, who, errors.New("the tenant claim isn't the name of exactly one tenant"))
		}
	}
	return who, nil
}

// begin ends the browser's previous session, if any, and begins a new one with a new secret.
func (s *SignIn) begin(r *http.Request, who Identity, back string) (secret string, _ *problem) {
	for _, cookie := range r.CookiesNamed(s.cookieName(sessionCookie)) {
		if err := s.options.Sessions.End(r.Context(), cookie.Value); err != nil {
			return "", internal(back, err)
		}
	}
	secret, err := s.options.Sessions.Begin(r.Context(), who)
	if errors.Is(err, ErrUnknownTenant) {
		return "", noTenant(back, who, err)
	}
	if err == nil && secret == "" {
		err = errors.New("the session has no secret")
	}
	if err == nil {
		// http.SetCookie would drop an invalid cookie without an error.
		err = s.cookie(sessionCookie, secret, s.options.Lifetime).Valid()
	}
	if err != nil {
		return "", internal(back, err)
	}
	return secret, nil
}

// noTenant returns the problem of a person whose claim doesn't name a tenant of this server.
func noTenant(back string, who Identity, cause error) *problem {
	text := "The provider names no tenant for " + who.Name + "."
	if who.Tenant != runtime.DefaultTenant {
		text = "The provider says that " + who.Name + " belongs to the tenant " + who.Tenant.String() + ", which doesn't exist on this server."
	}
	return &problem{
		status: http.StatusForbidden, title: "You have no tenant on this server", back: back,
		text: text + " Ask an administrator, or sign in as another user.", cause: cause, subject: who.Subject,
	}
}
