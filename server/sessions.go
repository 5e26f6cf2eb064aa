package server

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/server/signin"
)

// signIn returns the sign-in of the server. Without a provider, its pages say that there is none.
func (s *Server) signIn() *signin.SignIn {
	c := s.config.OIDC
	var rules []signin.Rule
	for _, rule := range c.RoleRules() {
		rules = append(rules, signin.Rule(rule))
	}
	return signin.New(signin.Options{
		Issuer: c.Issuer, ClientID: c.ClientID, ClientSecret: c.ClientSecret, RedirectURL: c.RedirectURL, Scopes: c.Scopes,
		RoleClaim: c.RoleClaim, Roles: rules, TenantClaim: c.TenantClaim, Lifetime: c.Session, CA: c.CA,
		Sessions: sessions{s.registry, s.audit, c.TenantClaim == ""},
		Address:  func(r *http.Request) string { return clients.ClientAddress(r.Context()).String() },
		Logger:   s.logger.Named("signin"),
	})
}

// auditLines returns the file to which the audit log is written in addition to the store, or "".
func auditLines(setting string) string {
	if setting == config.AccessLogOff {
		return ""
	}
	return setting
}

// sessions implements signin.Sessions with tokens of the registry. If the provider names no tenants,
// people act for all tenants, except that the role CLIENT acts for the default one.
type sessions struct {
	registry   *identity.Registry
	log        *audit.Log
	allTenants bool
}

// Begin implements signin.Sessions. It fails while the audit log is full.
func (s sessions) Begin(ctx context.Context, who signin.Identity) (string, error) {
	allTenants := s.allTenants && who.Role != access.Client
	tenant := who.Tenant
	if allTenants {
		tenant = audit.WholeServer
	}
	if err := s.log.Room(tenant); err != nil {
		return "", err
	}
	if _, there := s.registry.Tenant(who.Tenant); !there {
		s.record(ctx, "signIn", access.Token{Name: identity.PersonName(who.Name, who.Subject), AllTenants: true}, clients.ClientAddress(ctx), runtime.Errorf(runtime.CodeForbidden, "no tenant"))
		return "", signin.ErrUnknownTenant
	}
	made, secret, err := s.registry.CreateToken(ctx, access.Server(), identity.NewToken{
		Kind: access.KindSession, Name: identity.PersonName(who.Name, who.Subject), Subject: who.Subject, Tenant: who.Tenant,
		AllTenants: allTenants, Role: who.Role, Life: max(time.Until(who.Expires), time.Millisecond),
	})
	address, _ := netip.ParseAddr(who.Address)
	s.record(ctx, "signIn", made, address, err)
	return secret, err
}

// record adds a sign-in or sign-out to the audit log. The log limits the entries about failures of
// one person.
func (s sessions) record(ctx context.Context, action string, t access.Token, address netip.Addr, err error) {
	if err != nil && !s.log.Refusal("person "+t.Name) {
		return
	}
	tenant := t.Tenant
	if t.AllTenants {
		tenant = audit.WholeServer
	}
	s.log.Append(audit.Entry{
		Tenant: tenant, Actor: audit.Actor{Kind: audit.Session, ID: t.ID, Name: t.Name}, Role: string(t.Role), Action: action,
		ObjectKind: "TOKEN", ObjectID: t.ID, Address: address, Outcome: audit.OutcomeOf(ctx, err),
	})
}

// End implements signin.Sessions. It ends the session even if the audit log is full.
func (s sessions) End(ctx context.Context, secret string) error {
	t, ok := s.registry.Token(secret)
	if !ok || t.Kind != access.KindSession {
		return nil
	}
	_, err := s.registry.RevokeToken(ctx, access.Server(), t.ID, false)
	s.record(ctx, "signOut", t, clients.ClientAddress(ctx), err)
	if runtime.CodeOf(err) == runtime.CodeInvalidInput { // the session has already ended
		return nil
	}
	return err
}
