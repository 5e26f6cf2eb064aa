package connection

import (
	"cmp"
	"fmt"
	"net/url"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
)

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
