package server

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/server/signin"
)

// TestSessionsAreTokens: a session is a token. It acts for all tenants only if the provider names
// no tenant, and never with the role CLIENT.
func TestSessionsAreTokens(t *testing.T) {
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	registry := identity.New(identity.Config{Store: db, Key: make([]byte, 32), Logger: zap.NewNop()})
	if _, _, err := registry.PutTenant(t.Context(), "physics", nil, nil); err != nil {
		t.Fatal(err)
	}
	log, err := audit.New(audit.Config{Store: db})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		named  bool // the provider names tenants
		tenant runtime.TenantID
		role   access.Role
		all    bool
	}{
		{false, "", access.Admin, true}, {false, "", access.Observer, true}, {false, "", access.Client, false},
		{true, "physics", access.Admin, false}, {true, "", access.Admin, false},
	} {
		s := sessions{registry, log, !test.named}
		who := signin.Identity{Subject: "s", Name: "Ada\x00", Tenant: test.tenant, Role: test.role, Expires: time.Now().Add(time.Hour)}
		secret, err := s.Begin(t.Context(), who)
		if err != nil {
			t.Fatalf("%+v: %v", test, err)
		}
		caller, err := registry.Authenticate(secret)
		if p := caller.Principal; err != nil || p.Kind != access.KindSession || p.Tenant != test.tenant || p.AllTenants != test.all || p.Role != test.role || p.Name != "Ada" {
			t.Errorf("%+v: %+v, %v", test, p, err)
		}
		if made, ok := registry.Token(secret); !ok || made.Subject != "s" {
			t.Errorf("%+v: the session is %+v", test, made)
		}
		if err := s.End(t.Context(), secret); err != nil {
			t.Error(err)
		}
		if _, err := registry.Authenticate(secret); runtime.CodeOf(err) != runtime.CodeUnauthenticated {
			t.Errorf("%+v: it goes on: got %v, want UNAUTHENTICATED", test, err)
		}
		if err := s.End(t.Context(), secret); err != nil {
			t.Errorf("again: %v", err)
		}
	}
	if _, err := (sessions{registry, log, false}).Begin(t.Context(), signin.Identity{Name: "a", Tenant: "none", Role: "ADMIN", Expires: time.Now().Add(time.Hour)}); !errors.Is(err, signin.ErrUnknownTenant) {
		t.Errorf("an unknown tenant: got %v, want %v", err, signin.ErrUnknownTenant)
	}
}
