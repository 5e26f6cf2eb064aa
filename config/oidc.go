package config

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime/access"
)

// OIDC are the settings of sign-in with OpenID Connect. Without an Issuer, sign-in is off.
type OIDC struct {
	Issuer           string        `env:"ROCKPOOL_OIDC_ISSUER" placeholder:"URL" help:"URL of the OpenID Connect provider for signing in to the dashboard, as in its discovery document, for example https://login.example.org. http is for loopback only. Empty: no sign-in. ($$${env})"`
	ClientID         string        `name:"client-id" env:"ROCKPOOL_OIDC_CLIENT_ID" placeholder:"ID" help:"This server's client ID at the provider. ($$${env})"`
	ClientSecretFile string        `env:"ROCKPOOL_OIDC_CLIENT_SECRET_FILE" placeholder:"FILE" complete:"file" help:"File with the client's secret. Empty: a public client, which only PKCE protects. ($$${env})"`
	RedirectURL      string        `name:"redirect-url" env:"ROCKPOOL_OIDC_REDIRECT_URL" placeholder:"URL" help:"Address of /auth/callback as browsers reach it, for example https://pool.example.org/auth/callback. http is for loopback only. ($$${env})"`
	Scopes           []string      `env:"ROCKPOOL_OIDC_SCOPES" default:"openid,profile,email,groups" placeholder:"NAME,…" help:"Scopes to request. openid must be one of them. (${default}; $$${env})"`
	RoleClaim        string        `env:"ROCKPOOL_OIDC_ROLE_CLAIM" default:"groups" placeholder:"PATH" help:"Claim of the ID token that decides the role: text or a list. Dots lead into objects, for example realm_access.roles. (${default}; $$${env})"`
	Roles            []string      `env:"ROCKPOOL_OIDC_ROLES" placeholder:"VALUE=ROLE,…" help:"Roles by the claim's values, for example pool-admins=ADMIN,staff=OBSERVER. The highest role that matches applies. Without a match, sign-in is refused. Allowed roles: ADMIN, OPERATOR, CLIENT, OBSERVER. ($$${env})"`
	TenantClaim      string        `env:"ROCKPOOL_OIDC_TENANT_CLAIM" placeholder:"PATH" help:"Claim of the ID token with the tenant's name. Empty: people act for all tenants; with the role CLIENT, for the default tenant. ($$${env})"`
	Session          time.Duration `env:"ROCKPOOL_OIDC_SESSION" default:"8h" placeholder:"TIME" help:"How long a sign-in lasts. Allowed: 1m to 720h. (8h; $$${env})"`
	CAFile           string        `name:"ca-file" env:"ROCKPOOL_OIDC_CA_FILE" placeholder:"FILE" complete:"file" help:"PEM file with authorities that sign the provider's certificate, in addition to the machine's. ($$${env})"`

	ClientSecret string `kong:"-"` // Check reads it from ClientSecretFile
	CA           []byte `kong:"-"` // Check reads it from CAFile
}

// An OIDCRole is the role of people whose claim has the value.
type OIDCRole struct {
	Value string
	Role  access.Role
}

// RoleRules returns the roles by the values of RoleClaim, the highest first.
func (o *OIDC) RoleRules() []OIDCRole {
	var all []OIDCRole
	for _, role := range slices.Backward(access.Roles()) {
		for _, pair := range o.Roles {
			if at := strings.LastIndexByte(pair, '='); pair[at+1:] == string(role) { // a value may have one, too
				all = append(all, OIDCRole{pair[:at], role})
			}
		}
	}
	return all
}

// Bounds of OIDC.Session.
const (
	minSession = time.Minute
	maxSession = 720 * time.Hour
)

// check checks the settings of sign-in. It returns the host in RedirectURL, or "" without sign-in.
func (o *OIDC) check() (host string, err error) {
	if o.Issuer == "" {
		for _, s := range []struct{ flag, value string }{
			{"oidc-client-id", o.ClientID}, {"oidc-client-secret-file", o.ClientSecretFile}, {"oidc-redirect-url", redacted(o.RedirectURL)},
			{"oidc-roles", strings.Join(o.Roles, ",")}, {"oidc-tenant-claim", o.TenantClaim}, {"oidc-ca-file", o.CAFile},
		} {
			if s.value != "" {
				return "", &Error{s.flag, s.value, "left out without --oidc-issuer"}
			}
		}
		return "", nil
	}
	if u, err := url.Parse(o.Issuer); err != nil || !protected(u) || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", &Error{"oidc-issuer", redacted(o.Issuer), "an https URL, for example https://login.example.org; http is for loopback only"}
	}
	if o.ClientID == "" {
		return "", &Error{"oidc-client-id", "", "given with --oidc-issuer"}
	}
	redirect, err := url.Parse(o.RedirectURL)
	if err != nil || !protected(redirect) || redirect.Path != "/auth/callback" || redirect.RawQuery != "" || redirect.Fragment != "" || redirect.User != nil {
		return "", &Error{"oidc-redirect-url", redacted(o.RedirectURL), "the https URL of /auth/callback on this server, for example https://pool.example.org/auth/callback; http is for loopback only"}
	}
	if o.ClientSecretFile != "" {
		if o.ClientSecret, err = readToken("oidc-client-secret-file", o.ClientSecretFile, 1); err != nil {
			return "", err
		}
	}
	if !slices.Contains(o.Scopes, "openid") {
		return "", &Error{"oidc-scopes", strings.Join(o.Scopes, ","), "a list with openid in it"}
	}
	if o.RoleClaim == "" {
		return "", &Error{"oidc-role-claim", "", "a claim, for example groups"}
	}
	if len(o.Roles) == 0 {
		return "", &Error{"oidc-roles", "", "given with --oidc-issuer, for example admins=ADMIN,everybody=OBSERVER"}
	}
	for i, pair := range o.Roles {
		at := strings.LastIndexByte(pair, '=')
		if _, err := access.ParseRole("role", pair[at+1:]); at <= 0 || err != nil {
			return "", &Error{"oidc-roles", pair, "pairs VALUE=ROLE, with one of the roles ADMIN, OPERATOR, CLIENT and OBSERVER"}
		}
		if slices.ContainsFunc(o.Roles[:i], func(earlier string) bool {
			return strings.LastIndexByte(earlier, '=') == at && earlier[:at] == pair[:at]
		}) {
			return "", &Error{"oidc-roles", pair, "a role for each value; this value stands twice"}
		}
	}
	if o.Session < minSession || o.Session > maxSession {
		return "", &Error{"oidc-session", o.Session.String(), "1m to 720h"}
	}
	if o.CAFile != "" {
		if o.CA, err = os.ReadFile(o.CAFile); err != nil {
			return "", &Error{"oidc-ca-file", o.CAFile, "a file that can be read: " + reason(err)}
		}
		if !x509.NewCertPool().AppendCertsFromPEM(o.CA) {
			return "", &Error{"oidc-ca-file", o.CAFile, fmt.Sprintf("a file with certificates in PEM; it has %d bytes without one", len(o.CA))}
		}
	}
	return redirect.Hostname(), nil
}

// protected reports whether requests to a URL can't be read on the way: it is https, or on loopback.
func protected(u *url.URL) bool {
	host := u.Hostname()
	ip := net.ParseIP(host)
	return u.Scheme == "https" && host != "" || u.Scheme == "http" && (host == "localhost" || ip != nil && ip.IsLoopback())
}
