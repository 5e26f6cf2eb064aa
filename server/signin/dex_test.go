package signin

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/dextest"
)

// withDex returns a site with Dex as its provider, which isn't running yet.
func withDex(t *testing.T, change func(o *Options)) (*site, *dextest.Server) {
	t.Helper()
	var dex *dextest.Server
	s := newSite(t, func(redirectURL string) Options {
		dex = dextest.New(t, redirectURL)
		o := Options{
			Issuer: dex.Issuer, ClientID: dextest.ClientID, ClientSecret: dextest.ClientSecret,
			RoleClaim: "groups", Roles: []Rule{{dextest.MockGroup, "OPERATOR"}, {"others", "OBSERVER"}},
		}
		change(&o)
		return o
	})
	return s, dex
}

// byMock signs in with Dex's mock connector.
func (b *browser) byMock(s *site, back string) view {
	b.t.Helper()
	return b.follow(b.visit(s.url+"/auth/login?return="+url.QueryEscape(back)), "/auth/mock")
}

// byPassword signs in with Dex's password form.
func (b *browser) byPassword(s *site) view {
	b.t.Helper()
	form := b.follow(b.visit(s.url+"/auth/login"), "/auth/local")
	return b.send(http.MethodPost, form.url.String(), url.Values{"login": {dextest.Email}, "password": {dextest.Password}})
}

func TestSignInWithDex(t *testing.T) {
	s, dex := withDex(t, func(*Options) {})
	dex.Run(t)
	b := newBrowser(t)
	if configured, who := b.who(s); !configured || who != nil {
		t.Fatalf("%v %+v", configured, who)
	}
	v := b.byMock(s, "/executions/x?after=1")
	if v.status != http.StatusOK || v.text != "the page /executions/x?after=1" {
		t.Fatalf("%d %s: %s", v.status, v.url, v.text)
	}
	_, who := b.who(s)
	if who == nil || who.Name != "Kilgore Trout" || who.Role != "OPERATOR" || who.Tenant != runtime.DefaultTenant || who.Subject == "" || who.Expires.IsZero() {
		t.Fatalf("%+v", who)
	}
	first := b.cookies(s.url)
	if len(first) != 1 || first["rockpool"] == "" {
		t.Errorf("cookies: %v", first)
	}

	// A later sign-in has another secret, and ends the first session.
	b.byMock(s, "/")
	second := b.cookies(s.url)
	if second["rockpool"] == first["rockpool"] || second["rockpool"] == "" || s.sessions.count() != 1 {
		t.Errorf("the second sign-in has the session of the first: %v", second)
	}
	if _, found := s.sessions.Lookup(t.Context(), first["rockpool"]); found {
		t.Error("the first session goes on")
	}

	if v := b.logout(s); v.status != http.StatusNoContent {
		t.Errorf("%d %s", v.status, v.text)
	}
	if _, who := b.who(s); who != nil || s.sessions.count() != 0 || len(b.cookies(s.url)) != 0 {
		t.Errorf("still signed in: %+v %v", who, b.cookies(s.url))
	}

	// No secret of the provider or the cookies may be in the log.
	for _, entry := range s.logged.All() {
		for _, secret := range []string{first["rockpool"], second["rockpool"], dextest.ClientSecret} {
			if strings.Contains(entry.Message, secret) || slices.ContainsFunc(entry.Context, func(f zap.Field) bool { return strings.Contains(f.String, secret) }) {
				t.Errorf("logged: %+v", entry)
			}
		}
	}
}

func TestSignInByAnotherClaimWithDex(t *testing.T) {
	s, dex := withDex(t, func(o *Options) { o.RoleClaim, o.Roles = "email", []Rule{{dextest.Email, "ADMIN"}} })
	dex.Run(t)
	b := newBrowser(t)
	if v := b.byPassword(s); v.text != "the page /" {
		t.Fatalf("%d %s: got %s, want the page /", v.status, v.url, v.text)
	}
	if _, who := b.who(s); who == nil || who.Role != "ADMIN" || who.Name != "admin" {
		t.Errorf("%+v", who)
	}
}

func TestSignInWithoutARoleIsRefusedWithDex(t *testing.T) {
	s, dex := withDex(t, func(*Options) {})
	dex.Run(t)
	b := newBrowser(t)
	s.refused(t, b, b.byPassword(s), http.StatusForbidden, "You have no role on this server") // Dex's password users have no groups
}

func TestProviderMayBeDownAndChangeItsKey(t *testing.T) {
	s, dex := withDex(t, func(*Options) {})
	b := newBrowser(t)
	v := b.visit(s.url + "/auth/login?return=/runners")
	s.refused(t, b, v, http.StatusServiceUnavailable, "--oidc-issuer")
	if v.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	dex.Run(t)
	if v := b.follow(b.follow(v, "/auth/login"), "/auth/mock"); v.text != "the page /runners" {
		t.Fatalf("the provider is up: %d %s: %s, want the page /runners", v.status, v.url, v.text)
	}

	// Dex stops in the middle of a sign-in.
	choice := newBrowser(t)
	choice.visit(s.url + "/auth/login")
	dex.Stop()
	to, err := url.Parse(choice.path[0])
	if err != nil {
		t.Fatal(err)
	}
	v = choice.visit(s.url + "/auth/callback?code=x&state=" + to.Query().Get("state"))
	if v.status != http.StatusServiceUnavailable || !strings.Contains(v.text, "be reached") {
		t.Errorf("%d %s", v.status, v.text)
	}

	// With storage in memory, Dex has new keys after a restart.
	dex.Run(t)
	if v := newBrowser(t).byMock(s, "/batches"); v.text != "the page /batches" {
		t.Errorf("the provider has another key: %d %s: %s, want the page /batches", v.status, v.url, v.text)
	}
}
