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
func (b *Registry) makeBy(t testing.TB, by string, in NewToken) (access.Token, string) {
	t.Helper()
	maker, err := b.Authenticate(by)
	if err != nil {
		t.Fatal(err)
	}
	in.Kind, in.Name = access.KindToken, "test"
	made, text, err := b.CreateToken(t.Context(), maker.Principal, in)
	if err != nil {
		t.Fatal(err)
	}
	return made, text
}

// TestRevocationIncludesTokensMadeWithTheToken also covers an intermediate token that was revoked before.
func TestRevocationIncludesTokensMadeWithTheToken(t *testing.T) {
	b, m := newBook(t)
	admin := NewToken{Role: access.Admin, Tenant: "physics"}
	leaked, leakedText := b.make(t, admin)
	child, childText := b.makeBy(t, leakedText, admin)
	grandchild, grandchildText := b.makeBy(t, childText, admin)
	_, lastText := b.makeBy(t, grandchildText, NewToken{Role: access.Observer, Tenant: "physics"})
	_, otherText := b.make(t, admin)
	_, foreignText := b.makeBy(t, "first", NewToken{Role: access.Admin, Tenant: "chemistry"})
	if done, err := b.RevokeToken(t.Context(), access.Server(), child.ID, false); err != nil || !done.Revoked || done.Made != 0 {
		t.Fatalf("%+v %v", done, err)
	}
	if _, err := b.Authenticate(grandchildText); err != nil {
		t.Fatalf("what was made with a revoked token ended with it: %v", err)
	}
	known, err := b.Authenticate(lastText)
	if err != nil {
		t.Fatal(err)
	}
	ctx, release := known.Bind(t.Context())
	defer release()

	foreign, err := b.Authenticate(foreignText)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.RevokeToken(t.Context(), foreign.Principal, leaked.ID, true)
	wantCode(t, "by another tenant", err, runtime.CodeInvalidInput)

	done, err := b.RevokeToken(t.Context(), access.Server(), leaked.ID, true)
	if err != nil || !done.Revoked || done.Made != 2 || done.Token.ID != leaked.ID || done.Token.RevokedAt.IsZero() {
		t.Fatalf("%+v %v", done, err)
	}
	<-ctx.Done()
	again := load(t, m, Config{FirstToken: "first"})
	for _, text := range []string{leakedText, childText, grandchildText, lastText} {
		for _, book := range []*Registry{b, again} {
			_, err := book.Authenticate(text)
			wantCode(t, "what was made with it", err, runtime.CodeUnauthenticated)
		}
	}
	for _, text := range []string{otherText, foreignText} {
		if _, err := b.Authenticate(text); err != nil {
			t.Error("another's token ended:", err)
		}
	}
	if done, err := b.RevokeToken(t.Context(), access.Server(), grandchild.ID, true); err != nil || done.Revoked || done.Made != 0 || done.Token == nil {
		t.Errorf("again: %+v %v", done, err)
	}
}

// TestRevocationOfTokensMadeWithTheFilesToken checks that the file's token can't be revoked, but
// that tokens made with it can be, even after the file has changed.
func TestRevocationOfTokensMadeWithTheFilesToken(t *testing.T) {
	b, m := newBook(t)
	leaked, err := b.Authenticate("first")
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{"first", "second"} {
		_, text := b.makeBy(t, "first", NewToken{Role: access.Admin, AllTenants: true})
		book := load(t, m, Config{FirstToken: in})
		by, err := book.Authenticate(in)
		if err != nil {
			t.Fatal(err)
		}
		_, err = book.RevokeToken(t.Context(), by.Principal, leaked.ID, false)
		wantCode(t, "itself", err, runtime.CodeInvalidInput)
		if done, err := book.RevokeToken(t.Context(), by.Principal, leaked.ID, true); err != nil || done.Token != nil || done.Revoked || done.Made != 1 {
			t.Errorf("%+v %v", done, err)
		}
		_, err = book.Authenticate(text)
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
		b, m := newBook(t)
		admin := NewToken{Role: access.Admin, Tenant: "physics"}
		victim, victimText := b.make(t, admin)
		revoked, expired := b.principal(t, admin), b.principal(t, NewToken{Role: access.Admin, Tenant: "physics", Life: time.Minute})
		if _, err := b.RevokeToken(t.Context(), access.Server(), revoked.ID, false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		open := load(t, newMemory(), Config{Open: true})
		_, _ = open.make(t, NewToken{Role: access.Admin, AllTenants: true})
		for what, test := range map[string]struct {
			book *Registry
			by   access.Principal
		}{"revoked": {b, revoked}, "expired": {b, expired}, "without a token": {open, access.Anonymous()}} {
			before := len(test.book.Tokens(access.Server(), true))
			_, _, err := test.book.CreateToken(t.Context(), test.by, NewToken{Kind: access.KindToken, Name: "late", Role: access.Admin, Tenant: test.by.Tenant})
			wantCode(t, what, err, runtime.CodeUnauthenticated)
			_, err = test.book.RevokeToken(t.Context(), test.by, victim.ID, true)
			wantCode(t, what, err, runtime.CodeUnauthenticated)
			if now := len(test.book.Tokens(access.Server(), true)); now != before {
				t.Errorf("%s: it made one", what)
			}
		}
		if _, err := b.Authenticate(victimText); err != nil || m.count() != 3 {
			t.Error(err, m.count())
		}
	})
}

// TestTokensThatMadeOthersAreKept checks that they are kept as long as the others; otherwise
// revoking a leaked token could not find these.
func TestTokensThatMadeOthersAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := newBook(t)
		admin := NewToken{Role: access.Admin, Tenant: "physics"}
		leaked, leakedText := b.make(t, admin)
		between, betweenText := b.makeBy(t, leakedText, admin)
		last, lastText := b.makeBy(t, betweenText, admin)
		b.make(t, admin) // one always stays
		for _, id := range []string{leaked.ID, between.ID} {
			if _, err := b.RevokeToken(t.Context(), access.Server(), id, false); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		time.Sleep(keepTokens + time.Hour)
		synctest.Wait()
		if done, err := b.RevokeToken(t.Context(), access.Server(), leaked.ID, true); err != nil || done.Made != 1 {
			t.Errorf("a month later: %+v %v", done, err)
		}
		_, err := b.Authenticate(lastText)
		wantCode(t, "the last one", err, runtime.CodeUnauthenticated)
		time.Sleep(keepTokens + time.Hour)
		synctest.Wait()
		var left []string
		for _, token := range b.Tokens(access.Server(), true) {
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
	b, m := newBook(t)
	leaked, leakedText := b.make(t, NewToken{Role: access.Admin, Tenant: "physics"})
	_, text := b.makeBy(t, leakedText, NewToken{Role: access.Admin, Tenant: "physics"})
	before := maps.Clone(m.tokens)
	m.fails = errors.New("full")
	if _, err := b.RevokeToken(t.Context(), access.Server(), leaked.ID, true); !errors.Is(err, m.fails) {
		t.Errorf("got %v, want %v", err, m.fails)
	}
	for _, shown := range []string{leakedText, text} {
		if _, err := b.Authenticate(shown); err != nil || len(m.tokens) != len(before) {
			t.Error(err)
		}
	}
}
