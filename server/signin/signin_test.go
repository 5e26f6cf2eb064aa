package signin

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestOnlyATokenForThisSignInIsAccepted(t *testing.T) {
	other, err := rsa.GenerateKey(rand.Reader, 2048) // now: the provider has 10 s for an answer
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(claims map[string]any)
		sign   func(f *fake, claims []byte) string
		cause  string // "" means it is taken
	}{
		"a good one":                     {},
		"another audience":               {change: func(c map[string]any) { c["aud"] = "another" }, cause: "audience"},
		"several audiences":              {change: func(c map[string]any) { c["aud"] = []string{fakeClient, "another"} }, cause: "another client"},
		"several audiences, made for us": {change: func(c map[string]any) { c["aud"], c["azp"] = []string{fakeClient, "another"}, fakeClient }},
		"made for another client":        {change: func(c map[string]any) { c["azp"] = "another" }, cause: "another client"},
		"no audience":                    {change: func(c map[string]any) { delete(c, "aud") }, cause: "audience"},
		"another issuer":                 {change: func(c map[string]any) { c["iss"] = "https://evil.example.org" }, cause: "different provider"},
		"no issuer":                      {change: func(c map[string]any) { delete(c, "iss") }, cause: "different provider"},
		"expired":                        {change: func(c map[string]any) { c["exp"] = time.Now().Add(-31 * time.Second).Unix() }, cause: "expired"},
		"expired for a clock behind":     {change: func(c map[string]any) { c["exp"] = time.Now().Add(-20 * time.Second).Unix() }},
		"no expiry":                      {change: func(c map[string]any) { delete(c, "exp") }, cause: "expired"},
		"valid from tomorrow":            {change: func(c map[string]any) { c["nbf"] = time.Now().Add(24 * time.Hour).Unix() }, cause: "not before"},
		"another nonce":                  {change: func(c map[string]any) { c["nonce"] = "another" }, cause: "nonce"},
		"no nonce":                       {change: func(c map[string]any) { delete(c, "nonce") }, cause: "nonce"},
		"no subject":                     {change: func(c map[string]any) { delete(c, "sub") }, cause: "subject"},
		"an endless subject":             {change: func(c map[string]any) { c["sub"] = strings.Repeat("x", 256) }, cause: "subject"},
		"no token":                       {sign: func(*fake, []byte) string { return "" }, cause: "malformed"},
		"no signature":                   {sign: func(_ *fake, claims []byte) string { return unsigned(claims) }, cause: "malformed"},
		"signed with another algorithm":  {sign: func(f *fake, claims []byte) string { return signed(jose.ES256, f.other, "1", claims) }, cause: "signature algorithm"},
		"the public key as a secret":     {sign: func(f *fake, claims []byte) string { return signed(jose.HS256, f.publicPEM(), "1", claims) }, cause: "signature algorithm"},
		"the public key's DER as a secret": {sign: func(f *fake, claims []byte) string {
			block, _ := pem.Decode(f.publicPEM())
			return signed(jose.HS256, block.Bytes, "1", claims)
		}, cause: "signature algorithm"},
		"the client's secret as a key": {sign: func(_ *fake, claims []byte) string {
			return signed(jose.HS256, []byte(strings.Repeat(fakeSecret, 2)), "1", claims)
		}, cause: "signature algorithm"},
		"a key that isn't published": {sign: func(f *fake, claims []byte) string { return signed(jose.RS256, f.key, "2", claims) }, cause: "verify id token signature"},
		"another key by the name of one that is published": {sign: func(_ *fake, claims []byte) string {
			return signed(jose.RS256, other, "1", claims)
		}, cause: "verify id token signature"},
		"other claims below the signature": {sign: func(f *fake, claims []byte) string {
			parts := strings.Split(signed(jose.RS256, f.key, "1", claims), ".")
			parts[1] = base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(claims), "1234", "root", 1)))
			return strings.Join(parts, ".")
		}, cause: "signature"},
	} {
		t.Run(name, func(t *testing.T) {
			s, f := withFake(t, func(*Options) {})
			f.lie(test.change, test.sign)
			b := newBrowser(t)
			v := b.visit(s.url + "/auth/login?return=/runners")
			if test.cause == "" {
				if v.text != "the page /runners" {
					t.Errorf("%d %s; %v", v.status, v.text, s.logged.All())
				}
				return
			}
			s.refused(t, b, v, http.StatusForbidden, "It doesn't prove who you are.")
			if said := fmt.Sprint(s.logged.All()); !strings.Contains(said, test.cause) || strings.Contains(said, "CANARY") {
				t.Errorf("logged: %s", said)
			}
		})
	}
}

func unsigned(claims []byte) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode(claims) + "."
}

func TestProvidersOwnErrorsAreShownWithoutDetails(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(w http.ResponseWriter) bool
		status int
	}{
		"a wrong secret": {func(w http.ResponseWriter) bool {
			w.WriteHeader(http.StatusUnauthorized)
			write(w, map[string]any{"error": "invalid_client", "error_description": "CANARY"})
			return true
		}, http.StatusForbidden},
		"no server": {func(w http.ResponseWriter) bool { http.Error(w, "CANARY", http.StatusBadGateway); return true }, http.StatusServiceUnavailable},
		"another place": {func(w http.ResponseWriter) bool {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(http.StatusTemporaryRedirect)
			return true
		}, http.StatusForbidden},
	} {
		s, f := withFake(t, func(*Options) {})
		f.answer = test.answer
		b := newBrowser(t)
		v := b.visit(s.url + "/auth/login")
		s.refused(t, b, v, test.status, "Sign in again")
		if said := v.text + fmt.Sprint(s.logged.All()); strings.Contains(said, "CANARY") || strings.Contains(said, fakeSecret) {
			t.Errorf("%s: %s", name, said)
		}
		if f.asked != 1 {
			t.Errorf("%s: the provider was asked %d times, want 1", name, f.asked)
		}
	}
}

func TestRolesAndTenants(t *testing.T) {
	ranked := func(o *Options) {
		o.RoleClaim, o.TenantClaim = "realm.roles", "tenant"
		o.Roles = []Rule{{"admins", "ADMIN"}, {"staff", "CLIENT"}}
	}
	roles := func(roles any) func(map[string]any) {
		return func(c map[string]any) { c["realm"] = map[string]any{"roles": roles} }
	}
	both := func(tenant any) func(map[string]any) {
		return func(c map[string]any) { roles("staff")(c); c["tenant"] = tenant }
	}
	for name, test := range map[string]struct {
		change       func(claims map[string]any)
		role, tenant string
		says         string
	}{
		"several roles: the highest": {change: roles([]string{"others", "staff", "admins"}), role: "ADMIN", tenant: "physics"},
		"a text":                     {change: roles("staff"), role: "CLIENT", tenant: "physics"},
		"no match":                   {change: roles([]string{"others"}), says: "no role"},
		"another case":               {change: roles("Staff"), says: "no role"},
		"no list of texts":           {change: roles([]any{1, true, nil}), says: "no role"},
		"no claim":                   {change: func(map[string]any) {}, says: "no role"},
		"the default tenant":         {change: both("default"), role: "CLIENT", tenant: "default"},
		"a list of one tenant":       {change: both([]string{"physics"}), role: "CLIENT", tenant: "physics"},
		"two tenants":                {change: both([]string{"physics", "default"}), says: "no tenant"},
		"an unknown tenant":          {change: both("chemistry"), says: "the tenant chemistry, which doesn't exist on this server"},
		"an invalid tenant":          {change: both("../x"), says: "no tenant"},
		"an empty tenant":            {change: both(""), says: "no tenant"},
		"no tenant":                  {change: func(c map[string]any) { roles("staff")(c); delete(c, "tenant") }, says: "no tenant"},
	} {
		t.Run(name, func(t *testing.T) {
			s, f := withFake(t, ranked)
			f.lie(test.change, nil)
			b := newBrowser(t)
			v := b.visit(s.url + "/auth/login")
			if test.says != "" {
				s.refused(t, b, v, http.StatusForbidden, test.says)
				return
			}
			if _, who := b.who(s); who == nil || string(who.Role) != test.role || who.Tenant.String() != test.tenant {
				t.Errorf("%+v: %s", who, v.text)
			}
		})
	}
}

func TestNamesAreEscapedInThePage(t *testing.T) {
	s, f := withFake(t, func(o *Options) { o.Roles = nil })
	f.lie(func(c map[string]any) { c["name"] = "<script>alert(1)</script>\n\u202e\x1b[31m" }, nil)
	b := newBrowser(t)
	v := b.visit(s.url + "/auth/login")
	s.refused(t, b, v, http.StatusForbidden, "<script>alert(1)</script>[31m") // unescaped by the test
	if strings.Contains(v.text, "<script") {
		t.Error(v.text)
	}
}

func TestReturnIsAPathOfThisServer(t *testing.T) {
	for given, want := range map[string]string{
		"/":                             "/",
		"/runners":                      "/runners",
		"/executions/x?a=b&c=%2F#d":     "/executions/x?a=b&c=%2F#d",
		"":                              "/",
		"runners":                       "/",
		"//evil.example.org":            "/",
		"///evil.example.org":           "/",
		"/x//evil.example.org":          "/",
		`/\evil.example.org`:            "/",
		`\\evil.example.org`:            "/",
		"/\t/evil.example.org":          "/",
		"/\r\nSet-Cookie: a=b":          "/",
		"/ /evil.example.org":           "/",
		"/\x00":                         "/",
		"/é":                            "/",
		"https://evil.example.org":      "/",
		"javascript:alert(1)":           "/",
		"@evil.example.org":             "/",
		"/auth/login?return=/":          "/",
		"/" + strings.Repeat("x", 1024): "/",
	} {
		if got := localPath(given); got != want {
			t.Errorf("%q: got %q, want %q", given, got, want)
		}
	}
	s, _ := withFake(t, func(*Options) {})
	if v := newBrowser(t).visit(s.url + "/auth/login?return=" + url.QueryEscape("//evil.example.org/")); v.url.String() != s.url+"/" {
		t.Errorf("led to %s", v.url)
	}
}

var regexpState = regexp.MustCompile(`state=[A-Z0-9]+`)

// begin begins a sign-in and returns the callback's URL, which the browser hasn't opened yet.
func begin(t *testing.T, s *site, f *fake, b *browser) string {
	t.Helper()
	follow := b.client.CheckRedirect
	defer func() { b.client.CheckRedirect = follow }()
	var callback string
	b.client.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), s.url+"/auth/callback") {
			callback = r.URL.String()
			return http.ErrUseLastResponse
		}
		return nil
	}
	if v := b.visit(s.url + "/auth/login?return=/runners"); callback == "" {
		t.Fatalf("%s leads to no callback: %d %s", f.URL, v.status, v.text)
	}
	return callback
}

func TestAnAttemptIsCompletedOnceInItsBrowser(t *testing.T) {
	s, f := withFake(t, func(*Options) {})
	foreign := "This sign-in wasn't started in this browser"

	victim, attacker := newBrowser(t), newBrowser(t)
	callback := begin(t, s, f, attacker)
	s.refused(t, victim, victim.visit(callback), http.StatusBadRequest, foreign) // no attempt at all
	begin(t, s, f, victim)
	s.refused(t, victim, victim.visit(callback), http.StatusBadRequest, foreign) // another one's state
	s.refused(t, victim, victim.visit(s.url+"/auth/callback"), http.StatusBadRequest, foreign)
	if f.asked != 0 {
		t.Errorf("the provider was asked for %d tokens, want 0", f.asked)
	}

	// The same callback again, with the deleted cookie.
	attempt := attacker.cookies(s.url)["rockpool-signin"]
	if v := attacker.visit(callback); v.text != "the page /runners" {
		t.Fatalf("%d %s, want the page /runners", v.status, v.text)
	}
	if left := attacker.cookies(s.url); left["rockpool-signin"] != "" || left["rockpool"] == "" {
		t.Errorf("cookies after the sign-in: %v", left)
	}
	v := newBrowser(t).send(http.MethodGet, callback, nil, "Cookie", "rockpool-signin="+attempt)
	if v.status != http.StatusBadRequest || f.asked != 1 {
		t.Errorf("a replayed callback: %d, asked %d times: %s", v.status, f.asked, v.text)
	}

	// A changed cookie, and a cookie of another server.
	state := strings.TrimPrefix(regexpState.FindString(callback), "state=")
	for _, cookie := range []string{"", "x", attempt[:len(attempt)-2] + "AA", base64.RawURLEncoding.EncodeToString([]byte(`{"State":"` + state + `","Expires":"2999-01-01T00:00:00Z"}`))} {
		if v := newBrowser(t).send(http.MethodGet, callback, nil, "Cookie", "rockpool-signin="+cookie); v.status != http.StatusBadRequest {
			t.Errorf("cookie %q: %d, want %d", cookie, v.status, http.StatusBadRequest)
		}
	}
}

func TestAttemptsExpireAndAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAttempts()
		begun := newAttempt("/", time.Now())
		sealed, err := a.seal(begun)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(attemptLifetime - time.Second)
		if _, err := a.open(sealed, time.Now()); err != nil {
			t.Error(err)
		}
		if !a.use(begun.State, time.Now()) || a.use(begun.State, time.Now()) {
			t.Error("an attempt is used once")
		}
		time.Sleep(time.Second)
		if _, err := a.open(sealed, time.Now()); err == nil {
			t.Error("it is older than its lifetime")
		}
		if _, err := newAttempts().open(sealed, time.Now().Add(-time.Minute)); err == nil {
			t.Error("another process opened it")
		}
		time.Sleep(attemptLifetime)
		for i := range mostUsed + 10 {
			if !a.use(fmt.Sprint(i), time.Now()) {
				t.Fatal(i)
			}
		}
		if len(a.used) != mostUsed || len(a.order) != mostUsed {
			t.Errorf("%d used attempts are known, %d in order", len(a.used), len(a.order))
		}
	})
}

func TestASignInNeverReusesASession(t *testing.T) {
	s, f := withFake(t, func(*Options) {})
	planted, err := s.sessions.Begin(t.Context(), Identity{Subject: "attacker", Expires: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	b := newBrowser(t)
	callback := begin(t, s, f, b)
	u, _ := url.Parse(s.url)
	b.jar.SetCookies(u, []*http.Cookie{{Name: "rockpool", Value: planted, Path: "/"}})
	if v := b.visit(callback); v.text != "the page /runners" {
		t.Fatalf("%d %s, want the page /runners", v.status, v.text)
	}
	if got := b.cookies(s.url)["rockpool"]; got == planted || got == "" {
		t.Errorf("the session is %q", got)
	}
	if _, found := s.sessions.Lookup(t.Context(), planted); found {
		t.Error("the planted session goes on")
	}
	if _, who := b.who(s); who == nil || who.Name != "Ada" {
		t.Errorf("%+v", who)
	}
}

func TestTheProviderMayRefuse(t *testing.T) {
	s, f := withFake(t, func(*Options) {})
	for answer, says := range map[string]string{
		"error=access_denied":                       "The provider returned the error access_denied.",
		"error=%3Cscript%3E":                        "The provider returned the error unknown.",
		"iss=https%3A%2F%2Fevil.example.org&code=x": "It doesn't prove who you are.",
	} {
		b := newBrowser(t)
		callback := begin(t, s, f, b)
		s.refused(t, b, b.visit(s.url+"/auth/callback?"+regexpState.FindString(callback)+"&"+answer), http.StatusForbidden, says)
	}
	if f.asked != 0 {
		t.Errorf("the provider was asked for %d tokens, want 0", f.asked)
	}
}

func TestWithoutSignIn(t *testing.T) {
	s := newSite(t, func(string) Options { return Options{} })
	b := newBrowser(t)
	if configured, who := b.who(s); configured || who != nil {
		t.Errorf("%v %+v", configured, who)
	}
	for _, path := range []string{"/auth/login", "/auth/callback", "/auth/x"} {
		s.refused(t, b, b.visit(s.url+path), http.StatusNotFound, "This server has no sign-in")
	}
	r := httptest.NewRequest(http.MethodPost, s.url+"/graphql", nil)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Cookie", "rockpool=x; __Host-rockpool=x")
	if _, found := s.Secret(r); found {
		t.Error("a cookie counts")
	}
	if _, found := (*SignIn)(nil).Secret(r); found {
		t.Error("nobody found a cookie")
	}
}

// TestRefusalsDoNotFillTheLog: anybody can cause refusals.
func TestRefusalsDoNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zap.DebugLevel)
		s := New(Options{Issuer: "https://login.example.org", RedirectURL: "https://pool.example.org/auth/callback", Logger: zap.New(core)})
		for second := 1; second <= 2; second++ {
			for range 100 {
				s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/auth/callback", nil))
			}
			if logged.Len() != second*mostRefusals {
				t.Errorf("%d lines in second %d", logged.Len(), second)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestSessionsThatCannotBeStored(t *testing.T) {
	s, f := withFake(t, func(*Options) {})
	b := newBrowser(t)
	b.visit(s.url + "/auth/login")
	s.sessions.fail = errors.New("CANARY")
	if v := b.logout(s); v.status != http.StatusServiceUnavailable || strings.Contains(v.text, "CANARY") || b.cookies(s.url)["rockpool"] == "" {
		t.Errorf("%d %s", v.status, v.text)
	}
	other := newBrowser(t)
	if v := other.visit(begin(t, s, f, other)); v.status != http.StatusServiceUnavailable || strings.Contains(v.text, "CANARY") {
		t.Errorf("%d %s", v.status, v.text)
	}
}
