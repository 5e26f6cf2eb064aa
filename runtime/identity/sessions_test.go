package identity

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

// signIn begins a session of a person.
func (r *Registry) signIn(t testing.TB, subject string) (access.Token, string) {
	t.Helper()
	made, text, err := r.CreateToken(t.Context(), access.Server(), NewToken{Kind: access.KindSession, Name: "somebody", Subject: subject, Tenant: "physics", Role: access.Admin, Life: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return made, text
}

func (r *Registry) ends(t testing.TB, what, text string, ended bool) {
	t.Helper()
	if _, err := r.Authenticate(text); (err != nil) != ended {
		t.Errorf("%s: %v", what, err)
	}
}

// TestOnePersonsSessionsAreBounded checks that ended sessions are deleted first, then the oldest
// ones are ended, and other people's stay.
func TestOnePersonsSessionsAreBounded(t *testing.T) {
	r, m := newRegistry(t)
	_, other := r.signIn(t, "Bob")
	maker, makerText := r.signIn(t, "Ada")
	madeWith, _ := r.makeBy(t, makerText, NewToken{Role: access.Observer, Tenant: "physics"})
	_, second := r.signIn(t, "Ada")
	ctx := func(text string) (ended <-chan struct{}) {
		known, err := r.Authenticate(text)
		if err != nil {
			t.Fatal(err)
		}
		bound, release := known.Bind(t.Context())
		t.Cleanup(release)
		return bound.Done()
	}
	working := ctx(second)
	for range 50 {
		signedOut, _ := r.signIn(t, "Ada")
		if _, err := r.RevokeToken(t.Context(), access.Server(), signedOut.ID, false); err != nil {
			t.Fatal(err)
		}
	}
	r.ends(t, "the first one, while others were signed out", makerText, false)
	if n := m.count(); n > maxSessions+2 {
		t.Error(n, "are stored")
	}
	for range maxSessions - 1 {
		r.signIn(t, "Ada")
	}
	r.ends(t, "the oldest", makerText, true)
	r.ends(t, "the second one", second, false)
	_, last := r.signIn(t, "Ada")
	<-working
	for _, registry := range []*Registry{r, load(t, m, Config{})} {
		registry.ends(t, "the oldest", makerText, true)
		registry.ends(t, "the second one", second, true)
		registry.ends(t, "the last one", last, false)
		registry.ends(t, "another's", other, false)
	}
	if n := m.count(); n != maxSessions+3 {
		t.Errorf("%d are stored: %d of hers, the one with which a token was made, that token and another's", n, maxSessions)
	}
	if done, err := r.RevokeToken(t.Context(), access.Server(), maker.ID, true); err != nil || done.Made != 1 {
		t.Errorf("what was made with it, %s: %+v %v", madeWith.ID, done, err)
	}
}

// TestSessionsAreBoundedByTenant checks that one tenant's sessions leave room for another's, and
// that ended ones don't count.
func TestSessionsAreBoundedByTenant(t *testing.T) {
	r, _ := newRegistry(t)
	ended := access.Token{Kind: access.KindSession, Tenant: "chemistry", Role: access.Observer, RevokedAt: time.Now()}
	for i := range 2 * maxTokens {
		id := "made-" + strconv.Itoa(i)
		one := access.Token{ID: id, Kind: access.KindSession, Subject: id, Tenant: "physics", Role: access.Observer}
		if i >= maxTokens {
			one = ended
			one.ID, one.Subject = id, id
		}
		r.tokens[id] = newLive(one)
		if i < maxTokens {
			one = ended
			one.ID, one.Subject = "ended-"+id, id
			r.tokens[one.ID] = newLive(one)
		}
	}
	for tenant, want := range map[runtime.TenantID]runtime.Code{"physics": runtime.CodeLimitExceeded, "chemistry": "", runtime.DefaultTenant: ""} {
		_, _, err := r.CreateToken(t.Context(), access.Server(), NewToken{Kind: access.KindSession, Name: "s", Subject: "new", Tenant: tenant, Role: access.Observer, Life: time.Hour})
		if got := fmt.Sprint(runtime.CodeOf(err)); want == "" && err != nil || want != "" && got != string(want) {
			t.Errorf("%s: %v", tenant, err)
		}
	}
}
