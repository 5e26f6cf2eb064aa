package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rockpool/rockpool/runtime/access"
)

func validOIDC(t *testing.T) Config {
	c := valid(t)
	c.OIDC.Issuer, c.OIDC.ClientID = "https://login.example.org/dex", "rockpool"
	c.OIDC.RedirectURL, c.OIDC.Roles = "https://pool.example.org/auth/callback", []string{"admins=ADMIN"}
	return c
}

func TestValidSignInSettingsPass(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := validOIDC(t)
	c.OIDC.ClientSecretFile, c.OIDC.Roles = secret, []string{"staff=OBSERVER", "cn=admins=ADMIN"}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	if c.OIDC.ClientSecret != "s3cret" || c.OIDC.Session != 8*time.Hour {
		t.Errorf("%+v", c.OIDC)
	}
	if !slices.Contains(c.AllowedHosts, "pool.example.org") {
		t.Errorf("the public name isn't answered: %v", c.AllowedHosts)
	}
	if diff := cmp.Diff([]OIDCRole{{"cn=admins", access.Admin}, {"staff", access.Observer}}, c.OIDC.RoleRules()); diff != "" {
		t.Error(diff)
	}
	for _, loopback := range []string{"http://127.0.0.1:8080", "http://localhost:8080", "http://[::1]:8080"} {
		c := validOIDC(t)
		c.OIDC.Issuer, c.OIDC.RedirectURL = loopback, loopback+"/auth/callback"
		if err := c.Check(); err != nil {
			t.Errorf("%s: %v", loopback, err)
		}
	}
}

func TestWrongSignInSettingsAreNamed(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		flag  string
		spoil func(o *OIDC)
	}{
		{"oidc-client-id", func(o *OIDC) { o.Issuer = "" }},
		{"oidc-roles", func(o *OIDC) { *o = OIDC{Roles: o.Roles} }},
		{"oidc-issuer", func(o *OIDC) { o.Issuer = "http://login.example.org" }},
		{"oidc-issuer", func(o *OIDC) { o.Issuer = "login.example.org" }},
		{"oidc-issuer", func(o *OIDC) { o.Issuer += "?a=b" }},
		{"oidc-issuer", func(o *OIDC) { o.Issuer = "https://user:hidden@login.example.org" }},
		{"oidc-client-id", func(o *OIDC) { o.ClientID = "" }},
		{"oidc-redirect-url", func(o *OIDC) { o.RedirectURL = "" }},
		{"oidc-redirect-url", func(o *OIDC) { o.RedirectURL = "http://pool.example.org/auth/callback" }},
		{"oidc-redirect-url", func(o *OIDC) { o.RedirectURL = "https://pool.example.org/callback" }},
		{"oidc-redirect-url", func(o *OIDC) { o.RedirectURL = "https://pool.example.org/below/auth/callback" }},
		{"oidc-client-secret-file", func(o *OIDC) { o.ClientSecretFile = empty }},
		{"oidc-scopes", func(o *OIDC) { o.Scopes = []string{"profile"} }},
		{"oidc-role-claim", func(o *OIDC) { o.RoleClaim = "" }},
		{"oidc-roles", func(o *OIDC) { o.Roles = nil }},
		{"oidc-roles", func(o *OIDC) { o.Roles = []string{"admins"} }},
		{"oidc-roles", func(o *OIDC) { o.Roles = []string{"=ADMIN"} }},
		{"oidc-roles", func(o *OIDC) { o.Roles = []string{"admins=ROOT"} }},
		{"oidc-roles", func(o *OIDC) { o.Roles = []string{"admins=ADMIN", "admins=OBSERVER"} }},
		{"oidc-session", func(o *OIDC) { o.Session = time.Second }},
		{"oidc-session", func(o *OIDC) { o.Session = 721 * time.Hour }},
		{"oidc-ca-file", func(o *OIDC) { o.CAFile = empty }},
		{"oidc-ca-file", func(o *OIDC) { o.CAFile = "/nonesuch" }},
	} {
		c := validOIDC(t)
		test.spoil(&c.OIDC)
		err := c.Check()
		if err == nil || !strings.Contains(err.Error(), "--"+test.flag+" ") {
			t.Errorf("%s: %v", test.flag, err)
		}
		if err != nil && strings.Contains(err.Error(), "hidden") {
			t.Errorf("the error has the password: %v", err)
		}
	}
}
