package identity

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

// principal returns the caller with a new token.
func (r *Registry) principal(t testing.TB, in NewToken) access.Principal {
	t.Helper()
	_, text := r.make(t, in)
	known, err := r.Authenticate(text)
	if err != nil {
		t.Fatal(err)
	}
	return known.Principal
}

// TestTenantAdminManagesOnlyItsTenantsTokens checks that others' tokens look to it like missing ones.
func TestTenantAdminManagesOnlyItsTenantsTokens(t *testing.T) {
	r, _ := newRegistry(t)
	for _, tenant := range []runtime.TenantID{"physics", runtime.DefaultTenant} {
		admin := r.principal(t, NewToken{Role: access.Admin, Tenant: tenant})
		all, _ := r.make(t, NewToken{Role: access.Observer, AllTenants: true})
		foreign, _ := r.make(t, NewToken{Role: access.Observer, Tenant: "chemistry"})
		own, _ := r.make(t, NewToken{Role: access.Observer, Tenant: tenant})
		last := "0000"
		if strings.HasSuffix(own.ID, last) { // as one in 65,536 does
			last = "1111"
		}
		never := newLive(access.Token{ID: own.ID[:len(own.ID)-4] + last}).ID
		_, err := r.RevokeToken(t.Context(), admin, "none", false)
		unknown := runtime.MessageOf(err)
		for _, id := range []string{all.ID, foreign.ID, never, ""} {
			_, err := r.RevokeToken(t.Context(), admin, id, false)
			wantCode(t, "revoke "+id, err, runtime.CodeInvalidInput)
			if got, want := runtime.MessageOf(err), strings.ReplaceAll(unknown, "none", id); got != want {
				t.Errorf("revoke %q: got %q, want %q as for an unknown token", id, got, want)
			}
		}
		shown := map[string]bool{}
		for _, token := range r.Tokens(admin, true) {
			shown[token.ID] = true
			if token.Tenant != tenant || token.AllTenants {
				t.Errorf("%v: it sees %+v", tenant, token)
			}
		}
		if !shown[own.ID] || !shown[admin.ID] || len(shown) != 2 {
			t.Errorf("%v: it sees %v", tenant, shown)
		}
		try := func(in NewToken) error {
			in.Kind, in.Name = access.KindToken, "test"
			_, _, err := r.CreateToken(t.Context(), admin, in)
			return err
		}
		if err := try(NewToken{Role: access.Admin, Tenant: tenant}); err != nil {
			t.Error(err)
		}
		wantCode(t, "for all tenants", try(NewToken{Role: access.Observer, AllTenants: true}), runtime.CodeForbidden)
		foreignErr, neverErr := try(NewToken{Role: access.Observer, Tenant: "chemistry"}), try(NewToken{Role: access.Observer, Tenant: "alchemist"})
		wantCode(t, "for another tenant", foreignErr, runtime.CodeInvalidInput)
		if foreignErr == nil || neverErr == nil || strings.ReplaceAll(foreignErr.Error(), "chemistry", "alchemist") != neverErr.Error() {
			t.Errorf("%v and %v", foreignErr, neverErr)
		}
		if done, err := r.RevokeToken(t.Context(), admin, own.ID, false); err != nil || !done.Revoked {
			t.Error(err)
		}
		for _, id := range []string{all.ID, foreign.ID} {
			if _, err := r.RevokeToken(t.Context(), access.Server(), id, false); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestInvalidTokensAreRefused(t *testing.T) {
	r, _ := newRegistry(t)
	for what, in := range map[string]NewToken{
		"name":             {Role: access.Observer, Name: strings.Repeat("x", maxNameBytes+1)},
		"no name":          {Role: access.Observer, Name: ""},
		"line end":         {Role: access.Observer, Name: "a\nb"},
		"bytes":            {Role: access.Observer, Name: "a\xff"},
		"no role":          {Name: "a"},
		"role":             {Name: "a", Role: "ROOT"},
		"a client for all": {Name: "a", Role: access.Client, AllTenants: true},
		"both":             {Name: "a", Role: access.Admin, AllTenants: true, Tenant: "physics"},
		"no tenant":        {Name: "a", Role: access.Admin, Tenant: "nobodys"},
	} {
		_, _, err := r.CreateToken(t.Context(), access.Server(), in)
		wantCode(t, what, err, runtime.CodeInvalidInput)
	}
}

// TestDeletedTenantsTokensAreRevoked checks that their requests end, and that no token is made for
// the tenant meanwhile.
func TestDeletedTenantsTokensAreRevoked(t *testing.T) {
	r, m := newRegistry(t)
	_, text := r.make(t, NewToken{Role: access.Admin, Tenant: "physics"})
	_, foreign := r.make(t, NewToken{Role: access.Admin, Tenant: "chemistry"})
	_, all := r.make(t, NewToken{Role: access.Admin, AllTenants: true})
	_, ofDefault := r.make(t, NewToken{Role: access.Admin})
	known, err := r.Authenticate(text)
	if err != nil {
		t.Fatal(err)
	}
	ctx, release := known.Bind(t.Context())
	defer release()
	var making sync.WaitGroup
	begun := make(chan struct{}, 4)
	for range cap(begun) {
		making.Go(func() {
			for {
				_, _, err := r.CreateToken(t.Context(), access.Server(), NewToken{Kind: access.KindToken, Name: "late", Role: access.Client, Tenant: "physics"})
				if err != nil {
					return // the tenant no longer exists
				}
				select {
				case begun <- struct{}{}:
				default:
				}
			}
		})
	}
	<-begun
	if deleted, err := r.DeleteTenant(t.Context(), "physics"); err != nil || !deleted {
		t.Fatal(deleted, err)
	}
	making.Wait()
	<-ctx.Done()
	for _, token := range r.Tokens(access.Server(), true) {
		if token.Tenant == "physics" && token.RevokedAt.IsZero() {
			t.Errorf("%s is valid", token.Name)
		}
	}
	for _, token := range m.tokens {
		if token.Tenant == "physics" && token.RevokedAt.IsZero() {
			t.Errorf("%s is stored as valid", token.Name)
		}
	}
	for _, shown := range []string{foreign, all, ofDefault} {
		if _, err := r.Authenticate(shown); err != nil {
			t.Error(err)
		}
	}
	if deleted, err := r.DeleteTenant(t.Context(), "physics"); err != nil || deleted {
		t.Error("again:", deleted, err)
	}
	_, err = r.DeleteTenant(t.Context(), runtime.DefaultTenant)
	wantCode(t, "the default tenant", err, runtime.CodeInvalidInput)
	if _, created, err := r.PutTenant(t.Context(), "physics", nil, nil); err != nil || !created {
		t.Error(created, err)
	}
	if _, err := r.Authenticate(text); err == nil {
		t.Error("its old token is valid again")
	}
}

// TestUnstoredChangesHaveNoEffect checks that the registry equals the store.
func TestUnstoredChangesHaveNoEffect(t *testing.T) {
	r, m := newRegistry(t)
	made, text := r.make(t, NewToken{Role: access.Observer, Tenant: "physics"})
	m.fails = errors.New("full")
	_, _, err := r.CreateToken(t.Context(), access.Server(), NewToken{Kind: access.KindToken, Name: "a", Role: access.Observer})
	_, revoked := r.RevokeToken(t.Context(), access.Server(), made.ID, false)
	_, _, put := r.PutTenant(t.Context(), "new", nil, nil)
	_, deleted := r.DeleteTenant(t.Context(), "physics")
	for _, err := range []error{err, revoked, put, deleted} {
		if !errors.Is(err, m.fails) {
			t.Errorf("got %v, want %v", err, m.fails)
		}
	}
	if _, err := r.Authenticate(text); err != nil || len(r.Tokens(access.Server(), true)) != 1 || len(r.Tenants(access.Server())) != 3 {
		t.Error(err, r.Tokens(access.Server(), true), r.Tenants(access.Server()))
	}
}

func TestCallersSeeOnlyTheirTenant(t *testing.T) {
	r, _ := newRegistry(t)
	for want, in := range map[string]NewToken{
		"physics": {Role: access.Observer, Tenant: "physics"}, "default": {Role: access.Admin}, "chemistry default physics": {Role: access.Observer, AllTenants: true},
	} {
		var names []string
		for _, tenant := range r.Tenants(r.principal(t, in)) {
			names = append(names, tenant.ID.String())
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%+v sees %q, want %q", in, got, want)
		}
	}
	zero := access.Principal{}
	if len(r.Tenants(zero)) != 0 || len(r.Tokens(zero, true)) != 0 {
		t.Error("a caller without a token sees something")
	}
}

// TestWrongSecretsAreRefused checks that a token's id, which lists contain, doesn't authenticate.
func TestWrongSecretsAreRefused(t *testing.T) {
	r, _ := newRegistry(t)
	_, text := r.make(t, NewToken{Role: access.Client, Tenant: "physics"})
	_, other := r.make(t, NewToken{Role: access.Client, Tenant: "physics"})
	const ofID = len(tokenPrefix) + 22 // all of its 128 bits
	want := ""
	for what, shown := range map[string]string{
		"another secret": text[:ofID] + other[ofID:], "no secret": text[:ofID] + strings.Repeat("A", len(text)-ofID), "the last bits": text[:len(text)-1] + map[bool]string{true: "B", false: "A"}[text[len(text)-1] == 'A'],
		"an unknown id": tokenPrefix + strings.Repeat("A", ofID-len(tokenPrefix)) + text[ofID:], "the id": text[:ofID], "more": text + "A", "nothing": tokenPrefix, "garbage": "garbage",
	} {
		caller, err := r.Authenticate(shown)
		wantCode(t, what, err, runtime.CodeUnauthenticated)
		if want == "" && err != nil {
			want = err.Error()
		}
		if err == nil || err.Error() != want || caller.Principal.Kind != "" {
			t.Errorf("%s: %+v %v, not %s", what, caller.Principal, err, want)
		}
	}
}

// FuzzAuthenticate checks that only the text of a token or grant authenticates.
func FuzzAuthenticate(f *testing.F) {
	r, _ := newRegistry(f)
	token, text := r.make(f, NewToken{Role: access.Client, Tenant: "physics"})
	known, err := r.Authenticate(text)
	if err != nil {
		f.Fatal(err)
	}
	grant, _, err := r.Sign(known.Principal, access.Grant{Execution: "x", Rights: []access.Right{access.Watch}}, time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{text, grant, "first", "", token.ID, grantPrefix, tokenPrefix, text + "=", text[:20], grant[:len(grant)-1], grantPrefix + "{}", grant + "." + grant, "rpg_e30.e30.", "\x00"} {
		f.Add(seed)
	}
	header, rest, _ := strings.Cut(grant, ".")
	f.Fuzz(func(t *testing.T, shown string) {
		caller, err := r.Authenticate(shown)
		switch {
		case err != nil && runtime.CodeOf(err) != runtime.CodeUnauthenticated:
			t.Errorf("%q: %v", shown, err)
		case err != nil && caller.Principal.Kind != "":
			t.Errorf("%q: %+v beside %v", shown, caller.Principal, err)
		case err == nil && shown != text && shown != "first":
			// A grant may be written in other ways only where its signed parts are as they were.
			if h, r, _ := strings.Cut(shown, "."); h != header || r != rest {
				t.Errorf("%q is known as %+v", shown, caller.Principal)
			}
		}
		ctx, release := caller.Bind(context.Background())
		release()
		if err != nil && access.FromContext(ctx).Allow("version") == nil {
			t.Errorf("%q may do something", shown)
		}
	})
}
