package signin

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	fakeClient = "rockpool"
	fakeSecret = "the client's secret"
)

// A fake is a provider that signs everybody in immediately and can lie. Like a real one, it checks the
// client's secret and PKCE, and accepts a code only once.
type fake struct {
	*httptest.Server
	key   *rsa.PrivateKey
	other *ecdsa.PrivateKey // none of the provider's

	mu     sync.Mutex // guards what follows
	codes  map[string]url.Values
	change func(claims map[string]any)              // lies in the claims; nil means none
	sign   func(f *fake, claims []byte) string      // signs otherwise; nil means as it should
	answer func(w http.ResponseWriter) (given bool) // answers for the token endpoint; nil means nobody
	asked  int                                      // tokens
}

// fakeKey is the key of all fakes, because creating one takes long with the race detector.
var fakeKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func newFake(t *testing.T, serve func(http.Handler) *httptest.Server) *fake {
	t.Helper()
	key := fakeKey()
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{key: key, other: other, codes: map[string]url.Values{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", f.discovery)
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		write(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "1", Algorithm: "RS256", Use: "sig"}}})
	})
	mux.HandleFunc("GET /authorize", f.authorize)
	mux.HandleFunc("POST /token", f.token)
	f.Server = serve(mux)
	t.Cleanup(f.Close)
	return f
}

func write(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// discovery announces more algorithms than a client should accept.
func (f *fake) discovery(w http.ResponseWriter, _ *http.Request) {
	write(w, map[string]any{
		"issuer": f.URL, "authorization_endpoint": f.URL + "/authorize", "token_endpoint": f.URL + "/token", "jwks_uri": f.URL + "/keys",
		"id_token_signing_alg_values_supported": []string{"RS256", "HS256", "none"},
	})
}

func (f *fake) authorize(w http.ResponseWriter, r *http.Request) {
	query, code := r.URL.Query(), rand.Text()
	if query.Get("response_type") != "code" || query.Get("code_challenge_method") != "S256" || query.Get("code_challenge") == "" || query.Get("nonce") == "" {
		http.Error(w, "a wrong request", http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	f.codes[code] = query
	f.mu.Unlock()
	http.Redirect(w, r, query.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {query.Get("state")}}.Encode(), http.StatusFound)
}

func (f *fake) token(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if f.answer != nil && f.answer(w) {
		return
	}
	id, secret, _ := r.BasicAuth()
	begun, known := f.codes[r.PostFormValue("code")]
	delete(f.codes, r.PostFormValue("code"))
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if id != fakeClient || secret != url.QueryEscape(fakeSecret) || !known || base64.RawURLEncoding.EncodeToString(sum[:]) != begun.Get("code_challenge") {
		w.WriteHeader(http.StatusBadRequest)
		write(w, map[string]any{"error": "invalid_grant", "error_description": "CANARY"})
		return
	}
	now := time.Now()
	claims := map[string]any{
		"iss": f.URL, "aud": fakeClient, "sub": "1234", "name": "Ada", "groups": []string{"staff"}, "tenant": "physics",
		"nonce": begun.Get("nonce"), "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
	if f.change != nil {
		f.change(claims)
	}
	text, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	sign := f.sign
	if sign == nil {
		sign = func(f *fake, claims []byte) string { return signed(jose.RS256, f.key, "1", claims) }
	}
	write(w, map[string]any{"access_token": "CANARY", "token_type": "Bearer", "expires_in": 3600, "id_token": sign(f, text)})
}

// lie makes the provider lie in later responses.
func (f *fake) lie(change func(claims map[string]any), sign func(f *fake, claims []byte) string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.change, f.sign = change, sign
}

// signed returns a token signed with a key.
func signed(algorithm jose.SignatureAlgorithm, key any, id string, claims []byte) string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", id))
	if err != nil {
		panic(err)
	}
	token, err := signer.Sign(claims)
	if err != nil {
		panic(err)
	}
	text, err := token.CompactSerialize()
	if err != nil {
		panic(err)
	}
	return text
}

// publicPEM returns the provider's public key in PEM, which an attacker could use as an HMAC key.
func (f *fake) publicPEM() []byte {
	der, err := x509.MarshalPKIXPublicKey(f.key.Public())
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// withFake returns a site with a fake provider.
func withFake(t *testing.T, change func(o *Options)) (*site, *fake) {
	t.Helper()
	f := newFake(t, httptest.NewServer)
	return newSite(t, func(string) Options {
		o := Options{Issuer: f.URL, ClientID: fakeClient, ClientSecret: fakeSecret, RoleClaim: "groups", Roles: []Rule{{"staff", "CLIENT"}}}
		change(&o)
		return o
	}), f
}
