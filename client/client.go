// Package client sends operations to a server's API: queries and mutations over POST, files
// in multipart requests, subscriptions over WebSockets, downloads from signed addresses.
//
// Each operation of the files *.graphql is a generated function, for example [GetRunners].
// The functions of driver.go are shorter ways to what most callers do: [Claim], [Start],
// [Await], [Run], [Release]. [Client.Ask] sends any other operation.
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

// A Client sends operations to one server. Many goroutines may use it at once.
type Client struct {
	url       string // of the API itself
	http      *http.Client
	transport *http.Transport // of http
}

// New returns a client of the server at an address, for example
// "http://127.0.0.1:8080".
func New(server string) *Client { return with(newTransport(), server) }

// NewSocket returns a client of the server that listens on a Unix socket.
func NewSocket(path string) *Client {
	transport := newTransport()
	transport.Proxy = nil
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	return with(transport, "http://localhost")
}

func newTransport() *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = keptConnections
	return transport
}

func with(transport *http.Transport, server string) *Client {
	return &Client{url: strings.TrimSuffix(server, "/") + "/graphql", http: &http.Client{Transport: transport}, transport: transport}
}

// WithToken returns c after having it show a token to the server's API, and to
// nobody else. It must be called before c is used.
func (c *Client) WithToken(token string) *Client {
	if token != "" {
		c.http.Transport = bearer{c.transport, c.url, token}
	}
	return c
}

// WithTLS returns c after setting how it speaks TLS: with an authority of one's own, for
// example. It must be called before c is used, and leaves c the owner of config.
func (c *Client) WithTLS(config *tls.Config) *Client {
	c.transport.TLSClientConfig = config
	return c
}

// bearer adds the token to requests for the API itself: neither to downloads,
// whose addresses are signed, nor to what a server redirects to.
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

// Door sends a request to one of the server's APIs for clients of other systems, at a path. It shows the token.
func (c *Client) Door(ctx context.Context, method, path string, header http.Header, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.url, "/graphql")+path, body)
	if err != nil {
		return nil, err
	}
	r.Header = header
	if b, shows := c.http.Transport.(bearer); shows {
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	direct := *c.http
	direct.CheckRedirect = func(to *http.Request, _ []*http.Request) error { // which would get the token
		return fmt.Errorf("the server redirects to %s: use that address", to.URL.Redacted())
	}
	return direct.Do(r)
}

// keptConnections is how many stay open between calls: with net/http's own two,
// many who ask at once open a new one for nearly every call.
const keptConnections = 64

// An Error is the first error of an answer.
type Error struct {
	Message    string
	Extensions struct {
		Code      runtime.Code
		Field     string
		Retryable bool

		// Of a tenant's quota that was exceeded.
		Quota       string
		Limit, Used int64
		Pending     int64 // claims that took one of the quota runners, and wait
		RetryAfter  int   // seconds; 0: when something of the tenant's ends
	}
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

type answer struct {
	Data   json.RawMessage
	Errors []*Error
}

// into decodes an answer's data, or returns its error: then after decoding what data is beside that.
func (a answer) into(value any) error {
	if len(a.Errors) > 0 {
		if value != nil && len(a.Data) > 0 {
			_ = json.Unmarshal(a.Data, value) // the error counts
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

// Ask sends one operation. The error is an *Error if the server answered
// with one.
func (c *Client) Ask(ctx context.Context, query string, variables map[string]any, into any) error {
	return c.send(ctx, Request{query, variables}, into)
}

func (c *Client) send(ctx context.Context, operation, into any) error {
	body, err := json.Marshal(operation)
	if err != nil {
		return err
	}
	return c.Post(ctx, body, into)
}

// MakeRequest sends an operation for a generated function. The error is as Ask's.
func (c *Client) MakeRequest(ctx context.Context, operation *graphql.Request, answer *graphql.Response) error {
	return c.send(ctx, operation, answer.Data)
}

// A Sender is what generated functions send operations with: a [Client], or what
// [Client.Around] returns.
type Sender = graphql.Client

// Around returns a Sender that calls around for each operation. That calls send, which
// sends the operation once, as often as it likes, and returns the operation's error.
func (c *Client) Around(around func(ctx context.Context, send func(context.Context) error) error) Sender {
	return surrounded{c, around}
}

type surrounded struct {
	client *Client
	around func(ctx context.Context, send func(context.Context) error) error
}

// MakeRequest implements Sender.
func (s surrounded) MakeRequest(ctx context.Context, operation *graphql.Request, answer *graphql.Response) error {
	return s.around(ctx, func(ctx context.Context) error { return s.client.MakeRequest(ctx, operation, answer) })
}

// Post sends a body as it is, be it an operation or not. The error is as Ask's.
func (c *Client) Post(ctx context.Context, body []byte, into any) error {
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	post.Header.Set("Content-Type", "application/json")
	return c.answer(post, into)
}

// answer sends a request, and decodes what comes.
func (c *Client) answer(request *http.Request, into any) error {
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return c.read(response, into)
}

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

// stranger is the error for an answer that isn't one of ours.
func (c *Client) stranger(response *http.Response) error {
	return &Error{Message: fmt.Sprintf("%s doesn't answer as a Rockpool server does: %s", c.url, response.Status)}
}

// URL is the API's own address.
func (c *Client) URL() string { return c.url }

// CloseIdle closes the connections that nothing uses.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

// The pauses between attempts double from the first to the last.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 2 * time.Second
)

// Persist repeats an operation that is safe to repeat, for as long as patience,
// while again says of its error that this can help.
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

// Passing reports whether err is of a connection that broke, of a server that
// is starting or stopping or serves as much as it may, or of a reader that was too slow
// for it. A certificate that isn't trusted doesn't pass, nor does a server that doesn't speak TLS.
func Passing(err error) bool {
	var refused *Error
	var untrusted *tls.CertificateVerificationError
	if !errors.As(err, &refused) {
		return !errors.As(err, &untrusted) && !errors.Is(err, http.ErrSchemeMismatch)
	}
	switch refused.Extensions.Code {
	case runtime.CodeClusterUnavailable, runtime.CodeQuotaExceeded, runtime.CodeSlowConsumer:
		return true
	}
	return false
}
