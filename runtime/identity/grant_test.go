package identity

import (
	"context"
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"hash"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

type object = map[string]any

// A forge makes texts that look like grants.
type forge struct {
	header, claims object
	sign           func(text string) []byte
}

func encode(v any) string {
	text, _ := json.Marshal(v)
	return base64.RawURLEncoding.EncodeToString(text)
}

func (f forge) text() string {
	signed := encode(f.header) + "." + encode(f.claims)
	return grantPrefix + signed + "." + base64.RawURLEncoding.EncodeToString(f.sign(signed))
}

func hmacOf(h func() hash.Hash, key []byte) func(string) []byte {
	return func(text string) []byte {
		mac := hmac.New(h, key)
		mac.Write([]byte(text))
		return mac.Sum(nil)
	}
}

// TestForgedGrantsAreRefused checks that only texts that this server signed as grants are accepted.
func TestForgedGrantsAreRefused(t *testing.T) {
	r, _ := newRegistry(t)
	maker := r.principal(t, NewToken{Role: access.Client, Tenant: "physics"})
	key := r.grants.key
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	good := func() forge {
		return forge{
			header: object{"alg": "HS256"},
			claims: object{"jti": "1", "sub": maker.ID, "aud": grantAudience, "exp": time.Now().Add(time.Hour).Unix(), "tenant": "physics", "execution": "x", "rights": []string{"WATCH"}},
			sign:   hmacOf(sha256.New, key),
		}
	}
	if known, err := r.Authenticate(good().text()); err != nil || known.Grant.Execution != "x" {
		t.Fatalf("the text that is changed below isn't a valid grant: %v", err)
	}
	none := func(string) []byte { return nil }
	for what, change := range map[string]func(*forge){
		"no algorithm":       func(f *forge) { f.header, f.sign = object{"alg": "none"}, none },
		"None":               func(f *forge) { f.header, f.sign = object{"alg": "None"}, none },
		"no header":          func(f *forge) { f.header = object{} },
		"no signature":       func(f *forge) { f.sign = none },
		"none, but signed":   func(f *forge) { f.header["alg"] = "none" },
		"HS512 with the key": func(f *forge) { f.header["alg"], f.sign = "HS512", hmacOf(sha512.New, key) },
		"HS384 named":        func(f *forge) { f.header["alg"] = "HS384" },
		"RS256 named":        func(f *forge) { f.header["alg"] = "RS256" },
		"RS256":              func(f *forge) { f.header["alg"], f.sign = "RS256", rs256(t, rsaKey) },
		"RS256, its key within": func(f *forge) {
			f.header, f.sign = object{"alg": "RS256", "jwk": object{"kty": "RSA", "e": "AQAB", "n": base64.RawURLEncoding.EncodeToString(rsaKey.N.Bytes())}}, rs256(t, rsaKey)
		},
		"its key within": func(f *forge) {
			f.header, f.sign = object{"alg": "HS256", "jwk": object{"kty": "oct", "k": "AAAA"}}, hmacOf(sha256.New, []byte{0, 0, 0})
		},
		"a key of an address":      func(f *forge) { f.header["jku"], f.sign = "http://127.0.0.1:1/", hmacOf(sha256.New, nil) },
		"a key of a file":          func(f *forge) { f.header["kid"], f.sign = "../../dev/null", hmacOf(sha256.New, nil) },
		"a critical header":        func(f *forge) { f.header["crit"], f.header["x"] = []string{"x"}, 1 },
		"another key":              func(f *forge) { f.sign = hmacOf(sha256.New, []byte("another key of thirty-two bytes!")) },
		"the server's own key":     func(f *forge) { f.sign = hmacOf(sha256.New, testKey) }, // which signs addresses
		"no key":                   func(f *forge) { f.sign = hmacOf(sha256.New, nil) },
		"another audience":         func(f *forge) { f.claims["aud"] = "rockpool" },
		"no audience":              func(f *forge) { delete(f.claims, "aud") },
		"expired":                  func(f *forge) { f.claims["exp"] = time.Now().Add(-time.Second).Unix() },
		"no expiry":                func(f *forge) { delete(f.claims, "exp") },
		"an expiry that is null":   func(f *forge) { f.claims["exp"] = nil },
		"an expiry that is text":   func(f *forge) { f.claims["exp"] = "never" },
		"an expiry far beyond":     func(f *forge) { f.claims["exp"] = 1e300 },
		"two objects":              func(f *forge) { f.claims["runner"] = "r" },
		"no object":                func(f *forge) { delete(f.claims, "execution") },
		"an unknown maker":         func(f *forge) { f.claims["sub"] = "00000000-0000-0000-0000-000000000000" },
		"no maker":                 func(f *forge) { delete(f.claims, "sub") },
		"rights that are no list":  func(f *forge) { f.claims["rights"] = "WATCH" },
		"claims that are a number": func(f *forge) { f.claims = nil },
	} {
		f := good()
		change(&f)
		caller, err := r.Authenticate(f.text())
		if runtime.CodeOf(err) != runtime.CodeUnauthenticated || err == nil || caller.Principal.Kind != "" {
			t.Errorf("%s: %+v, %v", what, caller.Principal, err)
		}
	}
	// A changed grant doesn't match its signature.
	text := good().text()
	for what, other := range map[string]string{
		"another object":     swap(t, text, `"x"`, `"y"`),
		"more rights":        swap(t, text, `["WATCH"]`, `["STDIN"]`),
		"another tenant":     swap(t, text, `physics`, `chemist`),
		"without its prefix": strings.TrimPrefix(text, grantPrefix),
		"as a token":         tokenPrefix + strings.TrimPrefix(text, grantPrefix),
		"twice":              text + text, "more after it": text + ".e30",
	} {
		if caller, err := r.Authenticate(other); err == nil {
			t.Errorf("%s: %+v", what, caller.Principal)
		}
	}
}

func rs256(t *testing.T, key *rsa.PrivateKey) func(string) []byte {
	return func(text string) []byte {
		sum := sha256.Sum256([]byte(text))
		signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
		if err != nil {
			t.Fatal(err)
		}
		return signature
	}
}

// swap changes the claims of a grant without its signature.
func swap(t *testing.T, text, from, to string) string {
	t.Helper()
	parts := strings.Split(text, ".")
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || !strings.Contains(string(claims), from) {
		t.Fatalf("%s has no %s: %v", claims, from, err)
	}
	parts[1] = base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(claims), from, to, 1)))
	return strings.Join(parts, ".")
}

// TestGrantsCarryTheirObjectAndRights checks that they carry nothing else, such as their maker's role.
func TestGrantsCarryTheirObjectAndRights(t *testing.T) {
	r, m := newRegistry(t)
	maker := r.principal(t, NewToken{Role: access.Admin, Tenant: "physics"})
	text, made, err := r.Sign(maker, access.Grant{Runner: "r", Rights: []access.Right{access.Execute, access.Watch}}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for what, registry := range map[string]*Registry{"the server": r, "after a restart": load(t, m, Config{FirstToken: "first"})} {
		known, err := registry.Authenticate(text)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		g := known.Grant
		if known.Kind != access.KindGrant || known.Role != "" || known.Tenant != "physics" || known.AllTenants || known.ID != maker.ID ||
			g.ID != made.ID || g.Runner != "r" || g.Execution != "" || !slices.Equal(g.Rights, made.Rights) || !g.Expires.Equal(made.Expires) {
			t.Errorf("%s: %+v %+v", what, known.Principal, g)
		}
		_, _, err = registry.Sign(known.Principal, access.Grant{Runner: "r", Rights: []access.Right{access.Watch}}, time.Hour)
		wantCode(t, "a grant makes a grant", err, runtime.CodeForbidden)
		wantCode(t, "a grant may make grants", known.Allow("createGrant"), runtime.CodeForbidden)
	}
	_, err = load(t, m, Config{FirstToken: "first", Key: []byte("another key of thirty-two bytes!")}).Authenticate(text)
	wantCode(t, "with another key", err, runtime.CodeUnauthenticated)
	if _, err := r.RevokeToken(t.Context(), access.Server(), maker.ID, false); err != nil {
		t.Fatal(err)
	}
	for _, registry := range []*Registry{r, load(t, m, Config{FirstToken: "first"})} {
		_, err := registry.Authenticate(text)
		wantCode(t, "once its maker is revoked", err, runtime.CodeUnauthenticated)
	}
}

// TestGrantsExpire checks that grants end with their time, and with their maker's token.
func TestGrantsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newRegistry(t)
		for what, test := range map[string]struct {
			token, grant, lasts time.Duration
			why                 error
		}{
			"grant expires first": {0, time.Minute, time.Minute, errGrantExpired},
			"token expires first": {time.Minute, time.Hour, time.Minute, errExpired},
		} {
			maker := r.principal(t, NewToken{Role: access.Client, Tenant: "physics", Life: test.token})
			text, made, err := r.Sign(maker, access.Grant{Execution: "x", Rights: []access.Right{access.Watch}}, test.grant)
			if err != nil {
				t.Fatal(err)
			}
			if life := time.Until(made.Expires); life > test.grant || life <= test.grant-time.Second {
				t.Errorf("%s: it says %v", what, life)
			}
			known, err := r.Authenticate(text)
			if err != nil {
				t.Fatal(err)
			}
			ctx, release := known.Bind(t.Context())
			time.Sleep(test.lasts - time.Second)
			synctest.Wait()
			if ctx.Err() != nil {
				t.Errorf("%s: it ended too early", what)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if cause := context.Cause(ctx); !errors.Is(cause, test.why) {
				t.Errorf("%s: it ended by %v, want %v", what, cause, test.why)
			}
			_, err = r.Authenticate(text)
			wantCode(t, what, err, runtime.CodeUnauthenticated)
			release()
		}
	})
}
