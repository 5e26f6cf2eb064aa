package identity

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

func TestTokenLifecycle(t *testing.T) {
	r, _ := newRegistry(t)
	made, text := r.make(t, NewToken{Role: access.Client, Tenant: "physics"})
	known, err := r.Authenticate(text)
	want := access.Principal{Kind: access.KindToken, ID: made.ID, Name: "test", Tenant: "physics", Role: access.Client}
	if err != nil || known.Principal != want {
		t.Fatalf("%+v, %v", known.Principal, err)
	}
	ctx, release := known.Bind(t.Context())
	defer release()
	if access.FromContext(ctx) != want || ctx.Err() != nil {
		t.Errorf("%+v acts, %v", access.FromContext(ctx), ctx.Err())
	}
	if done, err := r.RevokeToken(t.Context(), access.Server(), made.ID, false); err != nil || !done.Revoked {
		t.Fatal(done, err)
	}
	<-ctx.Done()
	wantCode(t, "what its holder does", context.Cause(ctx), runtime.CodeUnauthenticated)
	_, err = r.Authenticate(text)
	wantCode(t, "a revoked token", err, runtime.CodeUnauthenticated)
	_, err = r.ByID(made.ID)
	wantCode(t, "a revoked token by its id", err, runtime.CodeUnauthenticated)
	if again, err := r.RevokeToken(t.Context(), access.Server(), made.ID, false); err != nil || again.Revoked || again.Token.RevokedAt.IsZero() {
		t.Errorf("revoked again: %+v %v", again, err)
	}
	if all := r.Tokens(access.Server(), false); len(all) != 1 || all[0].RevokedAt.IsZero() {
		t.Errorf("%+v", all)
	}
}

func TestExpiredTokenCancelsItsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newRegistry(t)
		_, text := r.make(t, NewToken{Role: access.Observer, Tenant: "physics", Life: time.Minute})
		time.Sleep(time.Minute - 1)
		known, err := r.Authenticate(text)
		if err != nil {
			t.Fatal(err)
		}
		ctx, release := known.Bind(t.Context())
		defer release()
		synctest.Wait()
		if ctx.Err() != nil {
			t.Error("it ended before its time")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if cause := context.Cause(ctx); !errors.Is(cause, errExpired) {
			t.Errorf("it continues: got %v, want %v", cause, errExpired)
		}
		_, err = r.Authenticate(text)
		wantCode(t, "an expired token", err, runtime.CodeUnauthenticated)
	})
}

// TestBoundContextEndsWithItsParent also checks that release drops all references to its token.
func TestBoundContextEndsWithItsParent(t *testing.T) {
	r, _ := newRegistry(t)
	_, text := r.make(t, NewToken{Role: access.Observer, Tenant: "physics"})
	known, err := r.Authenticate(text)
	if err != nil {
		t.Fatal(err)
	}
	parent, cancel := context.WithCancelCause(t.Context())
	ctx, release := known.Bind(parent)
	defer release()
	why := errors.New("why")
	cancel(why)
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), why) {
		t.Error(context.Cause(ctx))
	}
}

func TestLastUseIsStoredPeriodically(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := newRegistry(t)
		made, text := r.make(t, NewToken{Role: access.Observer, Tenant: "physics"})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		use := func() time.Time {
			t.Helper()
			if _, err := r.Authenticate(text); err != nil {
				t.Fatal(err)
			}
			return time.Now().Truncate(time.Millisecond)
		}
		stored := func() time.Time { m.mu.Lock(); defer m.mu.Unlock(); return m.tokens[made.ID].LastUsedAt }
		at := use()
		if !stored().IsZero() || !r.Tokens(access.Server(), false)[0].LastUsedAt.Equal(at) {
			t.Error("it is stored at once, or not shown")
		}
		time.Sleep(flushEvery)
		synctest.Wait()
		if !stored().Equal(at) {
			t.Errorf("stored %v, not %v", stored(), at)
		}
		time.Sleep(flushEvery)
		synctest.Wait()
		if m.uses != 1 {
			t.Errorf("stored %d times, used once, want 1", m.uses)
		}
		time.Sleep(flushEvery / 2)
		at = use()
		_ = m.change(func() { m.fails = errors.New("away") })
		time.Sleep(flushEvery)
		synctest.Wait()
		m.mu.Lock()
		m.fails = nil
		m.mu.Unlock()
		time.Sleep(flushEvery)
		synctest.Wait()
		if !stored().Equal(at) {
			t.Error("a use is lost when the store was away")
		}
		at = use()
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
		if !stored().Equal(at) {
			t.Error("the last use is lost when the server stops")
		}
	})
}

func TestOldSessionsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := newRegistry(t)
		session := func(life time.Duration) string {
			made, _, err := r.CreateToken(t.Context(), access.Server(), NewToken{Kind: access.KindSession, Name: "s", Role: access.Observer, Tenant: "physics", Life: life})
			if err != nil {
				t.Fatal(err)
			}
			return made.ID
		}
		expired, revoked, lasting := session(time.Hour), session(0), session(0)
		token, _ := r.make(t, NewToken{Role: access.Observer, Tenant: "physics", Life: time.Hour})
		if _, err := r.RevokeToken(t.Context(), access.Server(), revoked, false); err != nil {
			t.Fatal(err)
		}
		if len(r.Tokens(access.Server(), false)) != 1 || len(r.Tokens(access.Server(), true)) != 4 {
			t.Error("sessions are listed without being asked for, or not at all")
		}
		there := func() map[string]bool {
			all := map[string]bool{}
			for _, made := range r.Tokens(access.Server(), true) {
				all[made.ID] = true
			}
			return all
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		time.Sleep(keepSessions)
		synctest.Wait()
		if all := there(); !all[expired] || !all[revoked] {
			t.Error("they are forgotten too early")
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if all := there(); all[expired] || all[revoked] || !all[lasting] || !all[token.ID] || m.count() != 2 {
			t.Errorf("left are %v, stored are %d", all, m.count())
		}
		time.Sleep(keepTokens + time.Hour)
		synctest.Wait()
		if all := there(); all[token.ID] || !all[lasting] {
			t.Errorf("a month later: %v", all)
		}
		if _, err := r.RevokeToken(t.Context(), access.Server(), lasting, false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(keepTokens)
		synctest.Wait()
		if all := there(); !all[lasting] {
			t.Error("the last one is forgotten")
		}
		stop()
		<-ended
	})
}

// TestLoadReadsChangesOfOtherServers uses servers that share a store, one of which takes over from
// another.
func TestLoadReadsChangesOfOtherServers(t *testing.T) {
	r, m := newRegistry(t)
	other := load(t, m, Config{FirstToken: "first"})
	kept, keptText := r.make(t, NewToken{Role: access.Observer, Tenant: "physics"})
	made, text := r.make(t, NewToken{Role: access.Observer, Tenant: "physics"})
	gone, goneText := r.make(t, NewToken{Role: access.Observer, Tenant: "physics"})
	if _, err := other.Authenticate(text); err == nil {
		t.Fatal("the other server has it already")
	}
	bind := func(text string) context.Context {
		t.Helper()
		known, err := other.Authenticate(text)
		if err != nil {
			t.Fatal(err)
		}
		ctx, release := known.Bind(t.Context())
		t.Cleanup(release)
		return ctx
	}
	if err := other.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	stays, ends, deleted := bind(keptText), bind(text), bind(goneText)
	if _, err := r.RevokeToken(t.Context(), access.Server(), made.ID, false); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.DeleteTokens(t.Context(), []string{gone.ID}), other.Load(t.Context())); err != nil {
		t.Fatal(err)
	}
	<-ends.Done()
	<-deleted.Done()
	wantCode(t, "revoked elsewhere", context.Cause(ends), runtime.CodeUnauthenticated)
	if stays.Err() != nil {
		t.Errorf("%s ended, too", kept.ID)
	}
	if _, err := other.Authenticate(text); err == nil {
		t.Error("it is still known")
	}
}

// TestFirstTokenOfAnOpenServer checks that it must be able to make others, and that the server then
// requires tokens.
func TestFirstTokenOfAnOpenServer(t *testing.T) {
	m := newMemory()
	r, other := load(t, m, Config{Open: true}), load(t, m, Config{Open: true})
	if _, _, err := r.PutTenant(t.Context(), "physics", nil, nil); err != nil {
		t.Fatal(err)
	}
	bind := func(r *Registry, shown string) context.Context {
		t.Helper()
		known, err := r.Authenticate(shown)
		if err != nil || known.Kind != access.KindAnonymous || !known.AllTenants || known.Role != access.Admin {
			t.Fatalf("%q: %+v %v", shown, known, err)
		}
		ctx, release := known.Bind(t.Context())
		t.Cleanup(release)
		return ctx
	}
	open := []context.Context{bind(r, ""), bind(r, "whatever"), bind(other, "")}
	for what, in := range map[string]NewToken{
		"another role":       {Role: access.Operator, AllTenants: true},
		"role of one tenant": {Role: access.Admin, Tenant: "physics"},
		"limited life":       {Role: access.Admin, AllTenants: true, Life: time.Hour},
	} {
		in.Kind, in.Name = access.KindToken, "test"
		_, _, err := r.CreateToken(t.Context(), access.Anonymous(), in)
		wantCode(t, what, err, runtime.CodeInvalidInput)
		if !strings.Contains(err.Error(), "`rockpool token create admin --role ADMIN`") {
			t.Errorf("%s: %v doesn't name the command that makes the first one", what, err)
		}
	}
	grant, _, err := r.Sign(access.Anonymous(), access.Grant{Execution: "x", Rights: []access.Right{access.Watch}}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Authenticate(grant); err != nil || !r.Open() {
		t.Fatal(err, r.Open())
	}
	first, text, err := r.CreateToken(t.Context(), access.Anonymous(), NewToken{Kind: access.KindToken, Name: "first", Role: access.Admin, AllTenants: true})
	if err != nil || r.Open() {
		t.Fatal(err)
	}
	if err := other.Load(t.Context()); err != nil || other.Open() {
		t.Fatal(err)
	}
	for i, ctx := range open {
		<-ctx.Done()
		wantCode(t, "who showed nothing before", context.Cause(ctx), runtime.CodeUnauthenticated)
		_ = i
	}
	for _, shown := range []string{"", "whatever", grant} {
		_, err := r.Authenticate(shown)
		wantCode(t, shown, err, runtime.CodeUnauthenticated)
	}
	if _, err := r.ByID(""); err == nil {
		t.Error("a grant made without a token is still valid")
	}
	if _, err := r.Authenticate(text); err != nil {
		t.Error(err)
	}
	if _, err := r.RevokeToken(t.Context(), access.Server(), first.ID, false); err != nil || r.Open() || load(t, m, Config{Open: true}).Open() {
		t.Error("the server is open again when its only token is revoked", err)
	}
}

// TestTokenFromAFile checks that it can't be revoked, is in no list, and differs between files.
func TestTokenFromAFile(t *testing.T) {
	r, m := newRegistry(t)
	known, err := r.Authenticate("first")
	if err != nil || known.Role != access.Admin || !known.AllTenants {
		t.Fatalf("%+v %v", known, err)
	}
	if all := r.Tokens(known.Principal, true); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	_, err = r.RevokeToken(t.Context(), known.Principal, known.ID, false)
	wantCode(t, "revoked", err, runtime.CodeInvalidInput)
	if same, err := r.ByID(known.ID); err != nil || same.Principal != known.Principal {
		t.Error(err)
	}
	grant, _, err := r.Sign(known.Principal, access.Grant{Execution: "x", Rights: []access.Right{access.Watch}}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := load(t, m, Config{FirstToken: "first"}).Authenticate(grant); err != nil {
		t.Errorf("a grant doesn't survive a restart: %v", err)
	}
	changed := load(t, m, Config{FirstToken: "second"})
	_, err = changed.Authenticate(grant)
	wantCode(t, "a grant of a token that is in the file no more", err, runtime.CodeUnauthenticated)
	_, err = changed.Authenticate("first")
	wantCode(t, "a token that is in the file no more", err, runtime.CodeUnauthenticated)
}

// TestMadeTokensAreRecognized is needed because the server refuses to start with such a token in
// its file.
func TestMadeTokensAreRecognized(t *testing.T) {
	r, _ := newRegistry(t)
	_, text := r.makeBy(t, "first", NewToken{Role: access.Observer, AllTenants: true})
	for text, made := range map[string]bool{text: true, "": false, "first": false, "rpt_first": false} {
		if IsMade(text) != made {
			t.Errorf("%q: %t", text, !made)
		}
	}
}

// TestSecretsAreNotStored searches the database's files for tokens and grants.
func TestSecretsAreNotStored(t *testing.T) {
	r, dir := onDisk(t)
	made, text := r.make(t, NewToken{Role: access.Admin, AllTenants: true})
	known, err := r.Authenticate(text)
	if err != nil {
		t.Fatal(err)
	}
	grant, _, err := r.Sign(known.Principal, access.Grant{Execution: "x", Rights: []access.Right{access.Watch}}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	r.flush(t.Context())
	secret, _ := strings.CutPrefix(text, tokenPrefix)
	found := false
	err = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		found = found || bytes.Contains(data, []byte(made.ID)) // else the search proves nothing
		for what, canary := range map[string]string{"the token": secret, "its end": secret[len(secret)-20:], "the first token": "first-canary", "the grant": grant[len(grant)-20:]} {
			if bytes.Contains(data, []byte(canary)) {
				t.Errorf("%s has %s", entry.Name(), what)
			}
		}
		return err
	})
	if err != nil || !found {
		t.Error("the token's row isn't found", err)
	}
}

// TestTokensAreBoundedByTenant checks that one tenant's tokens leave room for another's, and for
// sessions.
func TestTokensAreBoundedByTenant(t *testing.T) {
	r, _ := newRegistry(t)
	for i := range maxTokens {
		id := "made-" + strconv.Itoa(i)
		r.tokens[id] = newLive(access.Token{ID: id, Kind: access.KindToken, Tenant: "physics", Role: access.Observer, CreatedAt: time.Now()})
	}
	ask := func(in NewToken) runtime.Code {
		_, _, err := r.CreateToken(t.Context(), access.Server(), in)
		if err == nil {
			return ""
		}
		return runtime.CodeOf(err)
	}
	if code := ask(NewToken{Kind: access.KindToken, Name: "one more", Tenant: "physics", Role: access.Observer}); code != runtime.CodeLimitExceeded {
		t.Errorf("one more: got %q, want %q", code, runtime.CodeLimitExceeded)
	}
	if code := ask(NewToken{Kind: access.KindToken, Name: "another's", Role: access.Observer}); code != "" {
		t.Errorf("another tenant's: got %q, want \"\"", code)
	}
	for i := range maxTokens {
		id := "session-" + strconv.Itoa(i)
		r.tokens[id] = newLive(access.Token{ID: id, Kind: access.KindSession, Tenant: "chemistry", Role: access.Observer})
	}
	if code := ask(NewToken{Kind: access.KindSession, Name: "a session", Tenant: "physics", Role: access.Observer, Life: time.Hour}); code != "" {
		t.Errorf("a session: got %q, want \"\"", code)
	}
}

// TestNewTenantDoesNotGetTokensOfADeletedOne checks that a tenant with a deleted one's name neither
// sees nor revokes its tokens, and that they don't count.
func TestNewTenantDoesNotGetTokensOfADeletedOne(t *testing.T) {
	r, _ := newRegistry(t)
	old, _ := r.make(t, NewToken{Role: access.Observer, Tenant: "physics"})
	if _, err := r.DeleteTenant(t.Context(), "physics"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.PutTenant(t.Context(), "physics", nil, nil); err != nil {
		t.Fatal(err)
	}
	own, secret := r.make(t, NewToken{Role: access.Admin, Tenant: "physics"})
	caller, err := r.Authenticate(secret)
	if err != nil {
		t.Fatal(err)
	}
	if all := r.Tokens(caller.Principal, true); len(all) != 1 || all[0].ID != own.ID {
		t.Errorf("%+v", all)
	}
	if _, err := r.RevokeToken(t.Context(), caller.Principal, old.ID, false); runtime.CodeOf(err) != runtime.CodeInvalidInput {
		t.Errorf("got %v, want INVALID_INPUT", err)
	}
	if _, all := r.count(own); all != 1 {
		t.Errorf("%d count, want 1", all)
	}
	if all := r.Tokens(access.Server(), true); len(all) != 2 {
		t.Errorf("%+v", all)
	}
}
