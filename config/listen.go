package config

import (
	"crypto/tls"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// TLS are the settings for serving by TLS.
type TLS struct {
	Cert       string `env:"ROCKPOOL_TLS_CERT" placeholder:"FILE" complete:"file" help:"PEM file with the server's certificate, then those of intermediate authorities. A changed file is used within a second, without a restart. Empty: the server doesn't speak TLS. ($$${env})"`
	Key        string `env:"ROCKPOOL_TLS_KEY" placeholder:"FILE" complete:"file" help:"PEM file with the private key of --tls-cert. A changed file is used within a second, without a restart. ($$${env})"`
	MinVersion string `env:"ROCKPOOL_TLS_MIN_VERSION" default:"1.3" placeholder:"VERSION" help:"Lowest version of TLS that clients may use. Allowed: 1.3, 1.2. (${default}; $$${env})"`
	ClientCA   string `name:"client-ca" env:"ROCKPOOL_TLS_CLIENT_CA" placeholder:"FILE" complete:"file" help:"PEM file with the authorities that sign clients' certificates. A certificate doesn't identify the caller: clients still need a token. Empty: clients need no certificate. ($$${env})"`
	ClientAuth string `env:"ROCKPOOL_TLS_CLIENT_AUTH" default:"require" placeholder:"WHAT" help:"Whether clients need a certificate, with --tls-client-ca. Allowed: require, optional (a client may have none). (${default}; $$${env})"`
}

// The values of TLS.ClientAuth.
const (
	ClientAuthRequire  = "require"
	ClientAuthOptional = "optional"
)

// Enabled reports whether the server speaks TLS.
func (t *TLS) Enabled() bool { return t.Cert != "" }

// Scheme is that of the server's addresses.
func (t *TLS) Scheme() string {
	if t.Enabled() {
		return "https"
	}
	return "http"
}

// Version returns MinVersion as crypto/tls names it.
func (t *TLS) Version() uint16 {
	if t.MinVersion == "1.2" {
		return tls.VersionTLS12
	}
	return tls.VersionTLS13
}

// check returns an [Error] for settings that exclude each other. The files are checked when they are read.
func (t *TLS) check() error {
	switch {
	case t.Cert != "" && t.Key == "":
		return &Error{"tls-key", "", "the file with the private key of --tls-cert"}
	case t.Key != "" && t.Cert == "":
		return &Error{"tls-cert", "", "the file with the certificate of --tls-key"}
	case t.ClientCA != "" && t.Cert == "":
		return &Error{"tls-client-ca", t.ClientCA, "left out without --tls-cert: clients show certificates by TLS only"}
	case t.MinVersion != "1.3" && t.MinVersion != "1.2":
		return &Error{"tls-min-version", t.MinVersion, "1.3 or 1.2"}
	case t.ClientAuth != ClientAuthRequire && t.ClientAuth != ClientAuthOptional:
		return &Error{"tls-client-auth", t.ClientAuth, "require or optional"}
	}
	return nil
}

// Proxies are the settings for a server behind proxies.
type Proxies struct {
	Behind  bool     `name:"behind-proxy" env:"ROCKPOOL_BEHIND_PROXY" help:"Serve beyond loopback without TLS, because a proxy in front speaks TLS with clients. Use it only if you trust the network between the proxy and the server. ($$${env})"`
	Trusted []string `name:"trusted-proxies" env:"ROCKPOOL_TRUSTED_PROXIES" placeholder:"NETWORK,…" help:"Addresses or networks of proxies, for example 127.0.0.1,10.0.0.0/24. The server believes X-Forwarded-For and X-Forwarded-Proto from these, and from nobody else. ($$${env})"`
}

// Networks returns the trusted proxies.
func (p *Proxies) Networks() (all []netip.Prefix, err error) {
	for _, text := range p.Trusted {
		network, err := netip.ParsePrefix(text)
		// An address is a network of its own.
		if address, isAddress := netip.ParseAddr(text); isAddress == nil {
			address = address.Unmap()
			network, err = address.Prefix(address.BitLen())
		}
		if err != nil || network != network.Masked() || network.Bits() == 0 || network.Addr().Is4In6() || network.Addr().Zone() != "" {
			return nil, &Error{"trusted-proxies", text, "addresses, or networks such as 10.0.0.0/24, but not all addresses"}
		}
		all = append(all, network)
	}
	return all, nil
}

// leastToken is the minimum length of this server's token: 96 random bits need 16 characters of base64.
const leastToken = 16

// checkListen checks that a server that others can reach has a token and TLS. It returns the address without
// the port.
func (c *Config) checkListen() (host string, err error) {
	if err := c.TLS.check(); err != nil {
		return "", err
	}
	if _, err := c.Proxies.Networks(); err != nil {
		return "", err
	}
	if c.TokenFile == "" {
		return Loopback("listen", c.Listen, " without a --token-file: every client that reaches the server can run programs on it")
	}
	if c.Token, err = readToken("token-file", c.TokenFile, leastToken); err != nil {
		return "", err
	}
	if !c.TLS.Enabled() && !c.Proxies.Behind {
		return Loopback("listen", c.Listen, " without TLS, which would send the token as it is: give --tls-cert and --tls-key, or --behind-proxy where a proxy in front speaks TLS")
	}
	return splitAddress("listen", c.Listen)
}

// The values of Config.AccessLog and Config.AuditLog that don't name a file.
const (
	AccessLogOff    = "off"
	AccessLogStdout = "-"
)

// checkLogs makes the paths of files absolute.
func (c *Config) checkLogs() error {
	for _, log := range []struct {
		flag string
		to   *string
	}{{"access-log", &c.AccessLog}, {"audit-log", &c.AuditLog}} {
		if *log.to == AccessLogOff || *log.to == AccessLogStdout {
			continue
		}
		path, err := filepath.Abs(*log.to)
		if err != nil || *log.to == "" || strings.HasSuffix(*log.to, "/") {
			return &Error{log.flag, *log.to, "off, a file, or - for stdout"}
		}
		if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
			return &Error{log.flag, *log.to, "off, - for stdout, or a file in a directory that exists"}
		}
		*log.to = path
	}
	return nil
}
