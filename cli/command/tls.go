package command

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLS has the flags for servers at https://.
type TLS struct {
	CAFile   string `env:"ROCKPOOL_CA_FILE" placeholder:"FILE" complete:"file" help:"Certificates of authorities to trust for a server at https://, in addition to the system's. ($$${env})"`
	CertFile string `env:"ROCKPOOL_CERT_FILE" placeholder:"FILE" complete:"file" help:"Client certificate, for a server that requires one. ($$${env})"`
	KeyFile  string `env:"ROCKPOOL_KEY_FILE" placeholder:"FILE" complete:"file" help:"Private key of the client certificate. ($$${env})"`
}

// Config returns the TLS configuration; nil if no flag is given.
func (t TLS) Config() (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil
	}
	config := &tls.Config{}
	if t.CAFile != "" {
		text, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--ca-file (or ROCKPOOL_CA_FILE): %w", err)
		}
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			config.RootCAs = x509.NewCertPool()
		}
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--ca-file (or ROCKPOOL_CA_FILE): %s has no certificate", t.CAFile)
		}
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		return nil, errors.New("--cert-file and --key-file (or ROCKPOOL_CERT_FILE and ROCKPOOL_KEY_FILE) must be given together")
	}
	if t.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("--cert-file and --key-file: %w", err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	return config, nil
}
