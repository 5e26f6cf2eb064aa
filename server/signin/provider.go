package signin

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"
)

// Limits of requests to the provider.
const (
	askWithin   = 10 * time.Second // timeout of one request
	mostAnswer  = 1 << 20          // bytes of one response
	mostAtOnce  = 16               // concurrent sign-ins
	clockLeeway = 30 * time.Second // how far the provider's clock may be behind
)

// A provider is an OpenID provider. It is discovered at the first sign-in, so the server can start
// without it. Its methods are safe for concurrent use.
type provider struct {
	options Options
	client  *http.Client
	asking  singleflight.Group // at most one discovery runs at a time
	found   atomic.Pointer[endpoints]
	slots   chan struct{} // one for each sign-in in progress
}

// endpoints has the endpoints of a provider.
type endpoints struct {
	oauth    oauth2.Config
	verifier *oidc.IDTokenVerifier
}

// newProvider returns the provider of the options. It sends no request.
func newProvider(options Options) *provider {
	authorities, err := x509.SystemCertPool()
	if err != nil {
		authorities = x509.NewCertPool()
	}
	// The provider's certificate may be signed by a system authority or by one of CA.
	authorities.AppendCertsFromPEM(options.CA)
	return &provider{
		options: options,
		client: &http.Client{
			Timeout: askWithin,
			Transport: limitedTransport{&http.Transport{
				Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12},
				TLSHandshakeTimeout: askWithin, MaxResponseHeaderBytes: 64 << 10, MaxIdleConnsPerHost: mostAtOnce, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
			}},
			// The code and the client's secret must go only to the discovered endpoint.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		slots: make(chan struct{}, mostAtOnce),
	}
}

// discover returns the provider's endpoints. It requests them until that succeeds once.
func (p *provider) discover() (*endpoints, error) {
	if found := p.found.Load(); found != nil {
		return found, nil
	}
	found, err, _ := p.asking.Do("", func() (any, error) {
		// The result is for all waiting callers and outlives the request, so it has its own context.
		ctx, cancel := context.WithTimeout(oidc.ClientContext(context.Background(), p.client), askWithin)
		defer cancel()
		return p.request(ctx)
	})
	if err != nil {
		return nil, fmt.Errorf("discover the provider %s: %w", p.options.Issuer, err)
	}
	p.found.Store(found.(*endpoints))
	return found.(*endpoints), nil
}

// request discovers the provider's endpoints and checks that they can be used.
func (p *provider) request(ctx context.Context) (*endpoints, error) {
	answer, err := oidc.NewProvider(ctx, p.options.Issuer)
	if err != nil {
		return nil, err
	}
	var metadata struct {
		Keys    string   `json:"jwks_uri"`
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := answer.Claims(&metadata); err != nil {
		return nil, err
	}
	endpoint := answer.Endpoint()
	// Secrets and tokens go to these endpoints. Only an issuer with http may have others with http.
	for name, address := range map[string]string{"authorization_endpoint": endpoint.AuthURL, "token_endpoint": endpoint.TokenURL, "jwks_uri": metadata.Keys} {
		if u, err := url.Parse(address); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != scheme(p.options.Issuer) {
			return nil, fmt.Errorf("its %s isn't the https URL of a host", name)
		}
	}
	// Without this, the library tries one method after the other, and the first attempt uses up the code.
	endpoint.AuthStyle = oauth2.AuthStyleInHeader
	if p.options.ClientSecret == "" || len(metadata.Methods) > 0 && !slices.Contains(metadata.Methods, "client_secret_basic") {
		endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return &endpoints{
		oauth: oauth2.Config{
			ClientID: p.options.ClientID, ClientSecret: p.options.ClientSecret, Endpoint: endpoint, RedirectURL: p.options.RedirectURL, Scopes: p.options.Scopes,
		},
		// It accepts only signatures by public keys, with the algorithms that the provider announces.
		verifier: answer.VerifierContext(ctx, &oidc.Config{ClientID: p.options.ClientID, Now: func() time.Time { return time.Now().Add(-clockLeeway) }}),
	}, nil
}

// scheme returns a URL's scheme; "" if the URL is invalid.
func scheme(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Scheme
}

// authorize returns the URL at the provider for an attempt.
func (d *endpoints) authorize(a attempt) string {
	return d.oauth.AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier))
}

// errBusy is returned when too many sign-ins are in progress.
var errBusy = errors.New("too many concurrent sign-ins")

// A refusedToken is the error for a response of the provider that doesn't prove the person's identity.
type refusedToken struct{ error }

// redeem exchanges an attempt's code for an ID token, verifies the token, and returns its claims.
// The error is a refusedToken unless the provider is unreachable.
func (p *provider) redeem(ctx context.Context, a attempt, code string) (claims map[string]any, err error) {
	provider, err := p.discover()
	if err != nil {
		return nil, err
	}
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	default:
		return nil, errBusy
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, p.client), askWithin)
	defer cancel()
	tokens, err := provider.oauth.Exchange(ctx, code, oauth2.VerifierOption(a.Verifier))
	var answered *oauth2.RetrieveError
	if errors.As(err, &answered) && answered.Response.StatusCode < 500 {
		return nil, refusedToken{fmt.Errorf("the token endpoint responded with %d %.64q", answered.Response.StatusCode, answered.ErrorCode)} // without the rest of the response, which may have secrets
	}
	if errors.As(err, &answered) {
		return nil, fmt.Errorf("the token endpoint responded with %d", answered.Response.StatusCode)
	}
	if err != nil {
		return nil, fmt.Errorf("call the token endpoint: %w", err)
	}
	raw, _ := tokens.Extra("id_token").(string)
	token, err := provider.verifier.Verify(ctx, raw)
	if err != nil {
		return nil, refusedToken{fmt.Errorf("verify the ID token: %w", err)}
	}
	if subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(a.Nonce)) != 1 {
		return nil, refusedToken{errors.New("the ID token has the nonce of another sign-in")}
	}
	if err := token.Claims(&claims); err != nil {
		return nil, refusedToken{fmt.Errorf("read the ID token's claims: %w", err)}
	}
	// OpenID Connect Core 1.0, 3.1.3.7: a token for several clients names the client it was issued for.
	if party, has := claims["azp"]; has && party != p.options.ClientID || !has && len(token.Audience) > 1 {
		return nil, refusedToken{errors.New("the ID token was issued for another client")}
	}
	if token.Subject == "" || len(token.Subject) > 255 {
		return nil, refusedToken{errors.New("the ID token has no subject of 1 to 255 bytes")}
	}
	return claims, nil
}

// limitedTransport limits the size of a transport's responses.
type limitedTransport struct{ of http.RoundTripper }

func (b limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.of.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(response.Body, mostAnswer), response.Body}
	return response, nil
}
