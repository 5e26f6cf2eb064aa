// Package client is the Go client of a Rockpool server. It sends queries and mutations as POST
// requests, files as multipart requests, and subscriptions over WebSockets; it downloads from
// signed addresses.
//
// Each operation in the files *.graphql has a generated function, for example [GetRunners].
// For common tasks, driver.go has shorter functions: [Claim], [Start], [Await], [Run],
// [Release]. [Client.Do] sends any other operation.
package client

//go:generate go tool genqlient

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/Khan/genqlient/graphql"

	"github.com/rockpool/rockpool/runtime"
)

// A Client sends operations to one server. It is safe for concurrent use.
type Client struct {
	url       string // of the API, ending in /graphql
	http      *http.Client
	transport *http.Transport // the one that http uses, below bearer
}

// New returns a client of the server at an address, for example "http://127.0.0.1:8080". It
// doesn't connect.
func New(server string) *Client { return with(newTransport(), server) }

// NewSocket returns a client of the server that listens on the Unix socket at path.
func NewSocket(path string) *Client {
	transport := newTransport()
	transport.Proxy = nil
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	return with(transport, "http://localhost")
}

// newTransport returns a copy of net/http's default transport that keeps more idle connections.
func newTransport() *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = keptConnections
	return transport
}

// with returns a client of the server at an address, with or without a slash at its end.
func with(transport *http.Transport, server string) *Client {
	return &Client{url: strings.TrimSuffix(server, "/") + "/graphql", http: &http.Client{Transport: transport}, transport: transport}
}

// WithToken makes c send a token with each request to the API, and returns c. Downloads and
// redirects never get the token. Call it before the first use of c.
func (c *Client) WithToken(token string) *Client {
	if token != "" {
		c.http.Transport = bearer{c.transport, c.url, token}
	}
	return c
}

// WithTLS makes c use config for TLS, for example with a private certificate authority, and
// returns c. Call it before the first use of c. c owns config afterwards.
func (c *Client) WithTLS(config *tls.Config) *Client {
	c.transport.TLSClientConfig = config
	return c
}

// bearer adds the token to requests for the API's own address. Downloads don't need it, since
// their addresses are signed. A server that the API redirects to must not get it.
type bearer struct {
	*http.Transport
	url, token string
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.String() == b.url {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.Transport.RoundTrip(r)
}

// Request sends an HTTP request with the token to the server, at a path such as /mcp. It returns
// an error for a redirect, because following it would reveal the token. If c has a token, Request adds
// it to header, which must not be nil then.
func (c *Client) Request(ctx context.Context, method, path string, header http.Header, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.url, "/graphql")+path, body)
	if err != nil {
		return nil, err
	}
	r.Header = header
	if b, shows := c.http.Transport.(bearer); shows {
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	// Use a copy: other requests keep their policy for redirects.
	direct := *c.http
	direct.CheckRedirect = func(to *http.Request, _ []*http.Request) error { // the target would get the token
		return fmt.Errorf("the server redirects to %s: use that address", to.URL.Redacted())
	}
	return direct.Do(r)
}

// keptConnections is how many idle connections stay open. With net/http's default of 2,
// concurrent callers would open a new connection for nearly every request.
const keptConnections = 64

// An Error is the first error of a response. Code, Field and Retryable are documented in
// docs/reference/errors.md.
type Error struct {
	Message    string
	Extensions struct {
		Code      runtime.Code
		Field     string
		Retryable bool

		// Set for QUOTA_EXCEEDED only.
		Quota       string
		Limit, Used int64
		Pending     int64 // waiting claims that count towards the quota of runners
		RetryAfter  int   // seconds; 0 means when the tenant releases something
	}

	proxied bool // a proxy responded that it has no response of the server
}

func (e *Error) Error() string {
	text := e.Message
	if e.Extensions.Field != "" {
		text = e.Extensions.Field + ": " + text
	}
	if e.Extensions.Code != "" {
		text += fmt.Sprintf(" (%s)", e.Extensions.Code)
	}
	return text
}

// CodeOf returns the code of the server's error in err's chain, or "".
func CodeOf(err error) runtime.Code {
	if refused, ok := errors.AsType[*Error](err); ok {
		return refused.Extensions.Code
	}
	return ""
}

// An answer is a response of the API.
type answer struct {
	Data   json.RawMessage
	Errors []*Error
}

// into decodes the data of a response, also if the response has errors. It returns the first
// error.
func (a answer) into(value any) error {
	if len(a.Errors) > 0 {
		if value != nil && len(a.Data) > 0 {
			_ = json.Unmarshal(a.Data, value) // the response's error is more useful than this one
		}
		return a.Errors[0]
	}
	if value == nil {
		return nil
	}
	return json.Unmarshal(a.Data, value)
}

// A Request is one operation and its variables.
type Request struct {
	Query     string         `json:"query"`
	Variables map[string]any `json:"variables,omitempty"`
}

// Do sends one operation and decodes its data. The error is an *Error if the server responded
// with errors; other errors are of the connection.
func (c *Client) Do(ctx context.Context, query string, variables map[string]any, into any) error {
	return c.send(ctx, Request{query, variables}, into)
}

// send encodes an operation as JSON and posts it. Its errors are those of Do.
func (c *Client) send(ctx context.Context, operation, into any) error {
	body, err := encode(operation)
	if err != nil {
		return err
	}
	return c.Post(ctx, body, into)
}

// encode returns an operation as JSON. It returns an *Error if a string isn't UTF-8, because JSON
// would carry another one.
func encode(operation any) ([]byte, error) {
	body, err := json.Marshal(operation)
	if err != nil {
		return nil, err
	}
	start := 0 // of the string
	for i, quoted := 0, false; i < len(body); i++ {
		switch body[i] {
		case '"':
			if quoted = !quoted; quoted {
				start = i
			}
		case '\\':
			// The encoder writes U+FFFD itself unescaped.
			if bytes.HasPrefix(body[i:], []byte(`\ufffd`)) {
				var text string
				_ = json.Unmarshal(append(body[start:i:i], '"'), &text)
				return nil, &Error{Message: fmt.Sprintf("the text that begins with %q isn't valid UTF-8, so it can't be sent: rename the file, or encode the text", text)}
			}
			i++
		}
	}
	return body, nil
}

// MakeRequest implements [Sender]. Its errors are those of [Client.Do].
func (c *Client) MakeRequest(ctx context.Context, operation *graphql.Request, answer *graphql.Response) error {
	return c.send(ctx, operation, answer.Data)
}

// A Sender sends the operations of the generated functions. A [Client] is one; [Client.Around]
// returns another.
type Sender = graphql.Client

// Around returns a Sender that calls the given function for each operation, for example to retry. That
// function may call send any number of times. Each call sends the operation once. The function returns
// the error of the operation.
func (c *Client) Around(around func(ctx context.Context, send func(context.Context) error) error) Sender {
	return wrappedSender{c, around}
}

// A wrappedSender is the Sender that Around returns.
type wrappedSender struct {
	client *Client
	around func(ctx context.Context, send func(context.Context) error) error
}

// MakeRequest implements Sender.
func (s wrappedSender) MakeRequest(ctx context.Context, operation *graphql.Request, answer *graphql.Response) error {
	return s.around(ctx, func(ctx context.Context) error { return s.client.MakeRequest(ctx, operation, answer) })
}

// Post sends body unchanged, even if it is no operation. Its errors are those of [Client.Do].
func (c *Client) Post(ctx context.Context, body []byte, into any) error {
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	post.Header.Set("Content-Type", "application/json")
	return c.answer(post, into)
}

// answer sends a request and decodes the response.
func (c *Client) answer(request *http.Request, into any) error {
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return c.read(response, into)
}

// read decodes a response, whatever its status is: the API describes errors in the body.
func (c *Client) read(response *http.Response, into any) error {
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	var a answer
	if err := json.Unmarshal(text, &a); err != nil || a.Data == nil && len(a.Errors) == 0 {
		return c.stranger(response)
	}
	return a.into(into)
}

// stranger returns the error for a response that no Rockpool server sends.
func (c *Client) stranger(response *http.Response) error {
	switch response.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return &Error{proxied: true, Message: fmt.Sprintf("a proxy in front of the server responded with %s for %s: the server isn't running, or the proxy can't reach it or doesn't wait long enough for it", response.Status, c.url)}
	}
	return &Error{Message: fmt.Sprintf("%s is not the API of a Rockpool server, it responded with %s: check the address", c.url, response.Status)}
}

// URL returns the address of the API.
func (c *Client) URL() string { return c.url }

// CloseIdle closes unused connections.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

// The pause between attempts doubles from firstPause to lastPause.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 2 * time.Second
)

// Persist calls attempt until it succeeds, until again returns false for its error, until
// patience has passed, or until ctx ends. It returns the last error of attempt. Use it only for
// operations that are safe to repeat. [Passing] is the usual again.
func Persist(ctx context.Context, patience time.Duration, again func(error) bool, attempt func() error) error {
	end := time.Now().Add(patience)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := attempt()
		if err == nil || ctx.Err() != nil || time.Now().After(end) || !again(err) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// Passing reports whether a retry can succeed: the connection broke, the server is starting,
// stopping or at its limit, or the reader was too slow. It reports false for an untrusted
// certificate and for a server without TLS. A proxy that doesn't reach the server is a broken connection.
func Passing(err error) bool {
	refused, ok := errors.AsType[*Error](err)
	if !ok {
		return !errors.As(err, new(*tls.CertificateVerificationError)) && !errors.Is(err, http.ErrSchemeMismatch)
	}
	switch refused.Extensions.Code {
	case "":
		return refused.proxied
	case runtime.CodeClusterUnavailable, runtime.CodeQuotaExceeded, runtime.CodeSlowConsumer:
		return true
	}
	return false
}
