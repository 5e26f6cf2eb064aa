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

// callback ends an attempt: the provider sends the browser here.
func (s *SignIn) callback(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	attempt, problem := s.attempt(r, query)
	if problem != nil {
		s.refuse(w, r, problem)
		return
	}
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
	s.options.Logger.Info("signed in", zap.String("subject", who.Subject), zap.String("role", string(who.Role)), zap.Stringer("tenant", who.Tenant), zap.String("address", who.Address))
	http.SetCookie(w, s.cookie(sessionCookie, secret, s.options.Lifetime))
	redirect(w, attempt.Return)
}

// attempt returns the attempt that a callback ends, which is then used.
func (s *SignIn) attempt(r *http.Request, query url.Values) (attempt, *problem) {
	sealed, _ := s.value(r, attemptCookie)
	attempt, err := s.attempts.open(sealed, time.Now())
	if err != nil {
		return attempt, s.foreign(err)
	}
	if subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(attempt.State)) != 1 {
		return attempt, s.foreign(errors.New("the state is of another attempt"))
	}
	if !s.attempts.use(attempt.State, time.Now()) {
		return attempt, s.foreign(errors.New("the attempt was used before"))
	}
	return attempt, nil
}

var errorCodes = regexp.MustCompile(`^[a-z_]{1,40}$`)

// identify returns the person that the provider names, with the role and the tenant that the settings give.
func (s *SignIn) identify(r *http.Request, query url.Values, attempt attempt) (Identity, *problem) {
	if code := query.Get("error"); code != "" {
		if !errorCodes.MatchString(code) {
			code = "an error"
		}
		return Identity{}, &problem{
			status: http.StatusForbidden, title: "The provider didn't sign you in", back: attempt.Return,
			text: "It answered with " + code + ". Sign in again, or ask the provider's administrator.", cause: errors.New("the provider answered " + code),
		}
	}
	// RFC 9207: who answered. There is one provider only, so that most don't say it.
	if issuer := query.Get("iss"); issuer != "" && issuer != s.options.Issuer {
		return Identity{}, unproven(attempt.Return, errors.New("another issuer answered"))
	}
	claims, err := s.provider.redeem(r.Context(), attempt, query.Get("code"))
	var refused refusedToken
	if errors.As(err, &refused) {
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
			text:  "You are signed in as " + who.Name + " at the provider, but none of your groups has a role here. Ask an administrator for one, or sign in as somebody else.",
			cause: errors.New("no value of the role claim has a role"), subject: who.Subject,
		}
	}
	if s.options.TenantClaim != "" {
		var named bool
		if who.Tenant, named = tenant(values(claims, s.options.TenantClaim)); !named {
			return Identity{}, noTenant(attempt.Return, who, errors.New("the tenant claim isn't the name of one tenant"))
		}
	}
	return who, nil
}

// begin ends the session that the browser had, and begins one with a new secret.
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
		err = s.cookie(sessionCookie, secret, s.options.Lifetime).Valid()
	}
	if err != nil {
		return "", internal(back, err)
	}
	return secret, nil
}

// noTenant is the problem of a person whose claim names no tenant of this server.
func noTenant(back string, who Identity, cause error) *problem {
	text := "The provider names no tenant for " + who.Name + "."
	if who.Tenant != runtime.DefaultTenant {
		text = "The provider says that " + who.Name + " belongs to the tenant " + who.Tenant.String() + ", which this server doesn't have."
	}
	return &problem{
		status: http.StatusForbidden, title: "You have no tenant on this server", back: back,
		text: text + " Ask an administrator, or sign in as somebody else.", cause: cause, subject: who.Subject,
	}
}
