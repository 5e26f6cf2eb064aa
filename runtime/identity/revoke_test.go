package identity

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

// makeBy makes a token with another one, whose text is by.
func (r *Registry) makeBy(t testing.TB, by string, in NewToken) (access.Token, string) {
	t.Helper()
	maker, err := r.Authenticate(by)
	if err != nil {
		t.Fatal(err)
	}
	in.Kind, in.Name = access.KindToken, "test"
	made, text, err := r.CreateToken(t.Context(), maker.Principal, in)
	if err != nil {
		t.Fatal(err)
	}
	return made, text
}

// TestRevocationIncludesTokensMadeWithTheToken also covers an intermediate token that was revoked before.
func TestRevocationIncludesTokensMadeWithTheToken(t *testing.T) {
	r, m := newRegistry(t)
	admin := NewToken{Role: access.Admin, Tenant: "physics"}
	leaked, leakedText := r.make(t, admin)
	child, childText := r.makeBy(t, leakedText, admin)
	grandchild, grandchildText := r.makeBy(t, childText, admin)
	_, lastText := r.makeBy(t, grandchildText, NewToken{Role: access.Observer, Tenant: "physics"})
	_, otherText := r.make(t, admin)
	_, foreignText := r.makeBy(t, "first", NewToken{Role: access.Admin, Tenant: "chemistry"})
	if done, err := r.RevokeToken(t.Context(), access.Server(), child.ID, false); err != nil || !done.Revoked || done.Made != 0 {
		t.Fatalf("%+v %v", done, err)
	}
	if _, err := r.Authenticate(grandchildText); err != nil {
		t.Fatalf("what was made with a revoked token ended with it: %v", err)
	}
	known, err := r.Authenticate(lastText)
	if err != nil {
		t.Fatal(err)
	}
	ctx, release := known.Bind(t.Context())
	defer release()

	foreign, err := r.Authenticate(foreignText)
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.RevokeToken(t.Context(), foreign.Principal, leaked.ID, true)
	wantCode(t, "by another tenant", err, runtime.CodeInvalidInput)

	done, err := r.RevokeToken(t.Context(), access.Server(), leaked.ID, true)
	if err != nil || !done.Revoked || done.Made != 2 || done.Token.ID != leaked.ID || done.Token.RevokedAt.IsZero() {
		t.Fatalf("%+v %v", done, err)
	}
	<-ctx.Done()
	again := load(t, m, Config{FirstToken: "first"})
	for _, text := range []string{leakedText, childText, grandchildText, lastText} {
		for _, registry := range []*Registry{r, again} {
			_, err := registry.Authenticate(text)
			wantCode(t, "what was made with it", err, runtime.CodeUnauthenticated)
		}
	}
	for _, text := range []string{otherText, foreignText} {
		if _, err := r.Authenticate(text); err != nil {
			t.Error("another's token ended:", err)
		}
	}
	if done, err := r.RevokeToken(t.Context(), access.Server(), grandchild.ID, true); err != nil || done.Revoked || done.Made != 0 || done.Token == nil {
		t.Errorf("again: %+v %v", done, err)
	}
}

// TestRevocationOfTokensMadeWithTheFilesToken checks that the file's token can't be revoked, but
// that tokens made with it can be, even after the file has changed.
func TestRevocationOfTokensMadeWithTheFilesToken(t *testing.T) {
	r, m := newRegistry(t)
	leaked, err := r.Authenticate("first")
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{"first", "second"} {
		_, text := r.makeBy(t, "first", NewToken{Role: access.Admin, AllTenants: true})
		registry := load(t, m, Config{FirstToken: in})
		by, err := registry.Authenticate(in)
		if err != nil {
			t.Fatal(err)
		}
		_, err = registry.RevokeToken(t.Context(), by.Principal, leaked.ID, false)
		wantCode(t, "itself", err, runtime.CodeInvalidInput)
		if done, err := registry.RevokeToken(t.Context(), by.Principal, leaked.ID, true); err != nil || done.Token != nil || done.Revoked || done.Made != 1 {
			t.Errorf("%+v %v", done, err)
		}
		_, err = registry.Authenticate(text)
		wantCode(t, "what was made with it", err, runtime.CodeUnauthenticated)
	}
}

// TestIDOfTheFilesTokenDisclosesNothing checks this because lists and logs contain ids, so that
// guesses could be tested offline.
func TestIDOfTheFilesTokenDisclosesNothing(t *testing.T) {
	id := firstID(testKey, "first")
	if id == firstID([]byte("another key of thirty-two bytes!"), "first") || id != firstID(testKey, "first") || id == firstID(testKey, "second") {
		t.Error(id)
	}
	if hash := fmt.Sprintf("%x", hashOf("first")); strings.Contains(hash, strings.TrimPrefix(id, "file-")) || len(id) != len("file-")+32 {
		t.Error(id, hash)
	}
}

// TestCallerWithAnEndedTokenCannotMakeChanges ends a token after its caller was authenticated. The
// caller must neither make nor revoke tokens then.
func TestCallerWithAnEndedTokenCannotMakeChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := newRegistry(t)
		admin := NewToken{Role: access.Admin, Tenant: "physics"}
		victim, victimText := r.make(t, admin)
		revoked, expired := r.principal(t, admin), r.principal(t, NewToken{Role: access.Admin, Tenant: "physics", Life: time.Minute})
		if _, err := r.RevokeToken(t.Context(), access.Server(), revoked.ID, false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		open := load(t, newMemory(), Config{Open: true})
		_, _ = open.make(t, NewToken{Role: access.Admin, AllTenants: true})
		for what, test := range map[string]struct {
			registry *Registry
			by       access.Principal
		}{"revoked": {r, revoked}, "expired": {r, expired}, "without a token": {open, access.Anonymous()}} {
			before := len(test.registry.Tokens(access.Server(), true))
			_, _, err := test.registry.CreateToken(t.Context(), test.by, NewToken{Kind: access.KindToken, Name: "late", Role: access.Admin, Tenant: test.by.Tenant})
			wantCode(t, what, err, runtime.CodeUnauthenticated)
			_, err = test.registry.RevokeToken(t.Context(), test.by, victim.ID, true)
			wantCode(t, what, err, runtime.CodeUnauthenticated)
			if now := len(test.registry.Tokens(access.Server(), true)); now != before {
				t.Errorf("%s: it made one", what)
			}
		}
		if _, err := r.Authenticate(victimText); err != nil || m.count() != 3 {
			t.Error(err, m.count())
		}
	})
}

// TestTokensThatMadeOthersAreKept checks that they are kept as long as the others; otherwise
// revoking a leaked token could not find these.
func TestTokensThatMadeOthersAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newRegistry(t)
		admin := NewToken{Role: access.Admin, Tenant: "physics"}
		leaked, leakedText := r.make(t, admin)
		between, betweenText := r.makeBy(t, leakedText, admin)
		last, lastText := r.makeBy(t, betweenText, admin)
		r.make(t, admin) // one always stays
		for _, id := range []string{leaked.ID, between.ID} {
			if _, err := r.RevokeToken(t.Context(), access.Server(), id, false); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		time.Sleep(keepTokens + time.Hour)
		synctest.Wait()
		if done, err := r.RevokeToken(t.Context(), access.Server(), leaked.ID, true); err != nil || done.Made != 1 {
			t.Errorf("a month later: %+v %v", done, err)
		}
		_, err := r.Authenticate(lastText)
		wantCode(t, "the last one", err, runtime.CodeUnauthenticated)
		time.Sleep(keepTokens + time.Hour)
		synctest.Wait()
		var left []string
		for _, token := range r.Tokens(access.Server(), true) {
			left = append(left, token.ID)
		}
		if slices.Contains(left, last.ID) || slices.Contains(left, between.ID) || slices.Contains(left, leaked.ID) {
			t.Errorf("another month later: %v", left)
		}
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
	})
}

// TestUnstoredRevocationHasNoEffect lets the store fail.
func TestUnstoredRevocationHasNoEffect(t *testing.T) {
	r, m := newRegistry(t)
	leaked, leakedText := r.make(t, NewToken{Role: access.Admin, Tenant: "physics"})
	_, text := r.makeBy(t, leakedText, NewToken{Role: access.Admin, Tenant: "physics"})
	before := maps.Clone(m.tokens)
	m.fails = errors.New("full")
	if _, err := r.RevokeToken(t.Context(), access.Server(), leaked.ID, true); !errors.Is(err, m.fails) {
		t.Errorf("got %v, want %v", err, m.fails)
	}
	for _, shown := range []string{leakedText, text} {
		if _, err := r.Authenticate(shown); err != nil || len(m.tokens) != len(before) {
			t.Error(err)
		}
	}
}
