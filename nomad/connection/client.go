// Package connection is the client of one Nomad cluster. It guarantees that calls keep to a budget
// of connections, are retried while Nomad doesn't answer, and that errors contain no secrets. It
// also runs commands in allocations, and streams the agent into tasks that can't fetch it.
package connection

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/fairqueue"
)

// A Client calls one Nomad cluster. Its methods are safe for concurrent use.
type Client struct {
	Pages Pages // addresses of Nomad's web UI

	api      *api.Client
	events   *api.Client // its connections break after silence
	execs    *http.Client
	direct   *direct  // nil if everything goes through the servers
	address  *url.URL // of execs: http or https
	settings api.Config

	patience time.Duration
	budget   fairqueue.Slots // of concurrent calls
	group    *Group          // calls end with it
	counts   *counts
}

// silence is how long the event stream may send nothing. Nomad sends a heartbeat every 30 s.
const silence = 65 * time.Second

// New returns a client whose calls end with a group. It doesn't connect yet. Each kind of
// connection has its own transport, since their lifetimes differ. INVALID_INPUT names an invalid
// field.
func New(config Config, with *Group) (*Client, error) {
	settings, address, err := config.settings()
	if err != nil {
		return nil, err
	}
	dial := config.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	}
	// HTTP needs the address of a host. The dialer ignores it, and connects to the socket.
	if address.Scheme == "unix" {
		path := address.Path
		var d net.Dialer
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", path) }
		address = &url.URL{Scheme: "http", Host: "127.0.0.1"}
	}
	c := &Client{
		Pages: newPages(config.UIURL, settings), address: address, settings: settings,
		patience: cmp.Or(config.Patience, 10*time.Second), budget: make(fairqueue.Slots, config.Calls), group: with, counts: newCounts(),
	}
	calls, err := c.newHTTP(settings.TLSConfig, dial, config.Calls)
	if err != nil {
		return nil, err
	}
	events, err := c.newHTTP(settings.TLSConfig, idleLimited(dial), 1)
	if err != nil {
		return nil, err
	}
	if c.execs, err = c.newHTTP(settings.TLSConfig, dial, 1); err != nil {
		return nil, err
	}
	if config.DirectTimeout > 0 {
		if c.direct, err = c.newDirect(config.DirectTimeout, dial); err != nil {
			return nil, err
		}
	}
	forEvents := settings
	settings.HttpClient, forEvents.HttpClient = calls, events
	if c.api, err = api.NewClient(&settings); err != nil {
		return nil, err
	}
	c.events, err = api.NewClient(&forEvents)
	return c, err
}

// A Dialer connects like net.Dialer.DialContext.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// newHTTP returns a client whose calls are counted. It keeps at most idle connections for reuse.
func (c *Client) newHTTP(settings *api.TLSConfig, dial Dialer, idle int) (*http.Client, error) {
	client := &http.Client{Transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dial,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:   5 * time.Second,
		ExpectContinueTimeout: time.Second,
		MaxIdleConnsPerHost:   idle,
		IdleConnTimeout:       time.Minute,
	}}
	if err := api.ConfigureTLS(client, settings); err != nil {
		return nil, runtime.Invalid("api", "the CA, certificate or key of Nomad's API can't be used: %v", err)
	}
	return &http.Client{Transport: countingTransport{client.Transport.(*http.Transport), c.counts}}, nil
}

func idleLimited(dial Dialer) Dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return idleLimitedConn{conn}, nil
	}
}

type idleLimitedConn struct{ net.Conn }

// Read implements net.Conn. Each call begins a new period of silence.
func (c idleLimitedConn) Read(p []byte) (int, error) {
	_ = c.SetReadDeadline(time.Now().Add(silence))
	return c.Conn.Read(p)
}

// Close closes idle connections.
func (c *Client) Close() {
	c.api.Close()
	c.events.Close()
	c.execs.CloseIdleConnections()
	if c.direct != nil {
		c.direct.client.CloseIdleConnections()
	}
}

// API returns Nomad's own client. Use it only within Call or Attempt, which bound its calls.
func (c *Client) API() *api.Client { return c.api }

// Events returns the events of topics from an index on, or new ones if it is 0. The channel ends
// when ctx does, or when Nomad is silent for too long.
func (c *Client) Events(ctx context.Context, topics map[api.Topic][]string, index uint64) (<-chan *api.Events, error) {
	return c.events.EventStream().Stream(ctx, topics, index, nil)
}

// Namespace returns the namespace of all calls; "" is Nomad's default.
func (c *Client) Namespace() string { return c.settings.Namespace }

// Leader returns the address of the servers' leader, if there is one. Nomad's own method has no context.
func (c *Client) Leader(ctx context.Context) (address string, err error) {
	err = c.Call(ctx, "ask for the leader", func(ctx context.Context) error {
		_, err := c.api.Raw().Query("/v1/status/leader", &address, Query(ctx))
		return err
	})
	return address, err
}

// Job returns a job, or nil if it doesn't exist.
func (c *Client) Job(ctx context.Context, id string) (*api.Job, error) {
	var job *api.Job
	err := c.Call(ctx, "read the job "+id, func(ctx context.Context) error {
		found, _, err := c.api.Jobs().Info(id, Query(ctx))
		job = found
		return IgnoreNotFound(err)
	})
	return job, err
}

// PurgeJob stops and purges a job. It returns the evaluation that ends the job's allocations, or an
// empty id for a job that doesn't exist. In errors what names the call.
func (c *Client) PurgeJob(ctx context.Context, what, id string) (evaluation string, err error) {
	err = c.Call(ctx, what, func(ctx context.Context) (err error) {
		evaluation, _, err = c.api.Jobs().Deregister(id, true, Writing(ctx))
		return IgnoreNotFound(err)
	})
	return evaluation, err
}

// Redact returns err without the token and the password, in case its text contains them.
func (c *Client) Redact(err error) error {
	secrets := []string{c.settings.SecretID}
	if auth := c.settings.HttpAuth; auth != nil {
		secrets = append(secrets, auth.Password)
	}
	text := err.Error()
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "[secret]")
		}
	}
	// The original is kept if possible, so that errors.Is and errors.As still work.
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}

// Config says how to reach Nomad. Empty fields up to TLSServerName are taken from NOMAD_ADDR,
// NOMAD_TOKEN and so on, as in Nomad's own command. Package config has checked the bounds of numbers.
type Config struct {
	Address       string // "http://127.0.0.1:4646"
	Region        string
	Namespace     string
	Token         string
	CACert        string // paths of PEM files
	ClientCert    string
	ClientKey     string
	TLSServerName string

	UIURL         string        // address of Nomad's web UI for browsers; else it is derived from Address
	Calls         int           // concurrent calls
	Patience      time.Duration // how long a call is retried while Nomad doesn't answer; 0 means 10 s
	DirectTimeout time.Duration // for a direct connection to a client node; with 0 everything goes through the servers
	Dial          Dialer        // connects to Nomad, if not by TCP
}

// settings returns the configuration of Nomad's own client, and Nomad's address. It moves a user
// and password from the address, where NOMAD_ADDR may have them, to fields that aren't shown.
func (c Config) settings() (api.Config, *url.URL, error) {
	if err := runtime.Between("directTimeout", c.DirectTimeout.Milliseconds(), 0, 60_000, "milliseconds"); err != nil {
		return api.Config{}, nil, err
	}
	if c.UIURL != "" && !browsable(c.UIURL) {
		return api.Config{}, nil, runtime.Invalid("uiUrl", "must be an http or https address of Nomad's pages without a user, for example https://nomad.example.org")
	}
	settings := *api.DefaultConfig() // from the variables NOMAD_…
	settings.Address = cmp.Or(c.Address, settings.Address)
	settings.Region = cmp.Or(c.Region, settings.Region)
	settings.Namespace = cmp.Or(c.Namespace, settings.Namespace)
	settings.SecretID = cmp.Or(c.Token, settings.SecretID)
	tls := settings.TLSConfig
	tls.CACert = cmp.Or(c.CACert, tls.CACert)
	tls.ClientCert = cmp.Or(c.ClientCert, tls.ClientCert)
	tls.ClientKey = cmp.Or(c.ClientKey, tls.ClientKey)
	tls.TLSServerName = cmp.Or(c.TLSServerName, tls.TLSServerName)
	address, err := url.Parse(settings.Address)
	if err != nil || (address.Scheme != "http" && address.Scheme != "https" && address.Scheme != "unix") {
		return settings, nil, runtime.Invalid("api.address", "must be an http, https or unix address of Nomad's API")
	}
	if user := address.User; user != nil {
		password, _ := user.Password()
		settings.HttpAuth = &api.HttpBasicAuth{Username: user.Username(), Password: password}
		address.User = nil
		settings.Address = address.String()
	}
	return settings, address, nil
}

// String returns the configuration without secrets, for logs.
func (c Config) String() string {
	if u, err := url.Parse(c.Address); err == nil {
		u.User = nil
		return fmt.Sprintf("Nomad at %s", u)
	}
	return "Nomad"
}

// GoString is like String.
func (c Config) GoString() string { return c.String() }

// Pages returns addresses of Nomad's web UI.
type Pages struct {
	base      string // without a slash at the end; empty if it is unknown
	namespace string
	region    string // empty for the server's own
}

// browsable reports whether a browser can use an address, and it contains no secret.
func browsable(address string) bool {
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

// newPages returns the pages at an address, or at that of Nomad's API if a browser can use it.
func newPages(address string, settings api.Config) Pages {
	if address == "" && browsable(settings.Address) {
		address = settings.Address
	}
	u := Pages{base: strings.TrimSuffix(strings.TrimRight(address, "/"), "/ui"), namespace: settings.Namespace, region: settings.Region}
	u.namespace = cmp.Or(u.namespace, api.DefaultNamespace)
	return u
}

// Job returns the page of a job; "" if the address of the web UI is unknown.
func (u Pages) Job(id string) string {
	return u.page("/ui/jobs/"+url.PathEscape(id)+"@"+url.PathEscape(u.namespace), url.Values{})
}

// Evaluation returns the page of an evaluation; "" if the address of the web UI is unknown.
func (u Pages) Evaluation(id string) string {
	return u.page("/ui/evaluations", url.Values{"currentEval": {id}, "namespace": {u.namespace}})
}

// page returns the address of a page, if that of the web UI is known. It modifies query.
func (u Pages) page(path string, query url.Values) string {
	if u.base == "" {
		return ""
	}
	if u.region != "" {
		query.Set("region", u.region)
	}
	if len(query) == 0 {
		return u.base + path
	}
	return u.base + path + "?" + query.Encode()
}
