package connection

import (
	"cmp"
	"fmt"
	"net/url"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
)

// Config says how Nomad is reached. Fields up to TLSServerName that are empty are taken
// from the variables NOMAD_ADDR, NOMAD_TOKEN and so on, as Nomad's own command does; the
// others have the default that is named.
type Config struct {
	Address       string // "http://127.0.0.1:4646"
	Region        string
	Namespace     string
	Token         string
	CACert        string // paths of PEM files
	ClientCert    string
	ClientKey     string
	TLSServerName string

	UIURL         string        // of Nomad's own pages as browsers reach them: the address
	Calls         int           // at once: 16
	Patience      time.Duration // how long a call is tried again while Nomad doesn't answer: 10 s
	DirectTimeout time.Duration // for a connection to a client node itself; 0: none is tried, all goes through the servers
	Dial          Dialer        // of connections to Nomad: one over TCP
}

// Complete returns c with its defaults, or INVALID_INPUT with the first field that can't
// be used.
func (c Config) Complete() (Config, error) {
	c.Calls = cmp.Or(c.Calls, 16)
	c.Patience = cmp.Or(c.Patience, 10*time.Second)
	return c, cmp.Or(
		runtime.Between("calls", int64(c.Calls), 4, 256, "calls"),
		runtime.Between("patience", c.Patience.Milliseconds(), 100, 600_000, "milliseconds"),
		runtime.Between("directTimeout", c.DirectTimeout.Milliseconds(), 0, 60_000, "milliseconds"),
		checkPages(c.UIURL),
	)
}

// settings returns those of Nomad's own client, and its address. A user and password in
// the address, which NOMAD_ADDR may have, are moved to where nothing shows them.
func (c Config) settings() (api.Config, *url.URL, error) {
	settings := *api.DefaultConfig() // what the variables NOMAD_… say
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

// String leaves secrets out, wherever a Config is printed.
func (c Config) String() string {
	if u, err := url.Parse(c.Address); err == nil {
		u.User = nil
		return fmt.Sprintf("Nomad at %s", u)
	}
	return "Nomad"
}

// GoString is String.
func (c Config) GoString() string { return c.String() }
