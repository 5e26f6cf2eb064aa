package signin

import (
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
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

// values returns a claim's text, or the texts of its list. Dots in the path separate the names of
// nested objects. A claim whose own name contains the dots takes precedence.
func values(claims map[string]any, path string) []string {
	if claim, has := claims[path]; has {
		return texts(claim)
	}
	for end := len(path); ; {
		if end = strings.LastIndexByte(path[:end], '.'); end < 0 {
			return nil
		}
		if inner, isObject := claims[path[:end]].(map[string]any); isObject {
			return values(inner, path[end+1:])
		}
	}
}

// texts returns the texts of a claim that is a text or a list. It ignores other values.
func texts(claim any) (all []string) {
	switch claim := claim.(type) {
	case string:
		return []string{claim}
	case []any:
		for _, item := range claim {
			if text, isText := item.(string); isText {
				all = append(all, text)
			}
		}
	}
	return all
}

// role returns the role of the first rule that matches one of the claim's values; "" if none does.
func role(rules []Rule, values []string) access.Role {
	for _, rule := range rules {
		if slices.Contains(values, rule.Value) {
			return rule.Role
		}
	}
	return ""
}

// tenant returns the tenant of a claim. named is false unless the claim has exactly one value and
// that is a valid name.
func tenant(values []string) (id runtime.TenantID, named bool) {
	if len(values) != 1 {
		return "", false
	}
	id, err := runtime.ParseTenant("tenant", values[0])
	return id, err == nil
}

// maxName is the maximum length of a name, in characters.
const maxName = 100

// name returns a person's name without control characters and other invisible ones, so that it
// can't control a terminal or break a log line.
func name(claims map[string]any) string {
	for _, claim := range []string{"name", "preferred_username", "email", "sub"} {
		text, _ := claims[claim].(string)
		text = strings.Map(func(r rune) rune {
			if r != ' ' && !unicode.IsGraphic(r) || r == unicode.ReplacementChar {
				return -1
			}
			return r
		}, text)
		if text = strings.TrimSpace(text); text != "" {
			return string([]rune(text)[:min(maxName, len([]rune(text)))])
		}
	}
	return ""
}
