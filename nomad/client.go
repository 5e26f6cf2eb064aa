package nomad

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
)

// connections are the ways to Nomad's API. Each has a transport of its own,
// since their connections live differently.
type connections struct {
	calls    *api.Client
	events   *api.Client // a connection that is silent for too long breaks
	bridges  *http.Client
	direct   *direct  // nil: all goes through the servers
	address  *url.URL // of bridges: http or https
	settings api.Config
}

// silence is how long the event stream may say nothing: Nomad sends a heartbeat
// every 30 s.
const silence = 65 * time.Second

// connect returns the ways to Nomad. Nothing is asked for yet.
func (c Config) connect() (*connections, error) {
	settings := api.DefaultConfig() // what the variables NOMAD_… say
	for _, s := range []struct {
		to    *string
		value string
	}{
		{&settings.Address, c.API.Address},
		{&settings.Region, c.API.Region},
		{&settings.Namespace, c.API.Namespace},
		{&settings.SecretID, c.API.Token},
		{&settings.TLSConfig.CACert, c.API.CACert},
		{&settings.TLSConfig.ClientCert, c.API.ClientCert},
		{&settings.TLSConfig.ClientKey, c.API.ClientKey},
		{&settings.TLSConfig.TLSServerName, c.API.TLSServerName},
	} {
		if s.value != "" {
			*s.to = s.value
		}
	}
	address, err := url.Parse(settings.Address)
	if err != nil || (address.Scheme != "http" && address.Scheme != "https" && address.Scheme != "unix") {
		return nil, runtime.Invalid("api.address", "must be an http, https or unix address of Nomad's API")
	}
	if user := address.User; user != nil { // which NOMAD_ADDR may have: nobody is to read it where the address is told
		password, _ := user.Password()
		settings.HttpAuth = &api.HttpBasicAuth{Username: user.Username(), Password: password}
		address.User = nil
		settings.Address = address.String()
	}
	dial := (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	if address.Scheme == "unix" {
		path := address.Path
		var d net.Dialer
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", path) }
		address = &url.URL{Scheme: "http", Host: "127.0.0.1"}
	}
	if c.dial != nil {
		dial = c.dial
	}
	k := &connections{address: address}
	calls, err := newHTTP(settings.TLSConfig, dial, c.Calls)
	if err != nil {
		return nil, err
	}
	events, err := newHTTP(settings.TLSConfig, impatient(dial), 1)
	if err != nil {
		return nil, err
	}
	if k.bridges, err = newHTTP(settings.TLSConfig, dial, 1); err != nil {
		return nil, err
	}
	if k.direct, err = c.newDirect(*settings, dial); err != nil {
		return nil, err
	}
	if k.calls, err = newClient(*settings, calls); err != nil {
		return nil, err
	}
	if k.events, err = newClient(*settings, events); err != nil {
		return nil, err
	}
	k.settings = *settings
	return k, nil
}

func newClient(settings api.Config, client *http.Client) (*api.Client, error) {
	settings.HttpClient = client
	return api.NewClient(&settings)
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// newHTTP returns a client that keeps at most idle connections for later use.
func newHTTP(settings *api.TLSConfig, dial dialer, idle int) (*http.Client, error) {
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
	return client, nil
}

// impatient returns a dialer whose connections break when nothing comes for
// silence.
func impatient(dial dialer) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return impatientConn{conn}, nil
	}
}

type impatientConn struct{ net.Conn }

func (c impatientConn) Read(p []byte) (int, error) {
	_ = c.SetReadDeadline(time.Now().Add(silence))
	return c.Conn.Read(p)
}

// close gives back the connections that nobody uses.
func (k *connections) close() {
	k.calls.Close()
	k.events.Close()
	k.bridges.CloseIdleConnections()
	if k.direct != nil {
		k.direct.client.CloseIdleConnections()
	}
}
