package connection

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLS are the flags for servers at https://.
type TLS struct {
	CAFile   string `env:"ROCKPOOL_CA_FILE" placeholder:"FILE" complete:"file" help:"Certificates of the authorities that the certificate of a server at https:// may be by, beside those that the system trusts. ($$${env})"`
	CertFile string `env:"ROCKPOOL_CERT_FILE" placeholder:"FILE" complete:"file" help:"Certificate to show to a server that asks for one. ($$${env})"`
	KeyFile  string `env:"ROCKPOOL_KEY_FILE" placeholder:"FILE" complete:"file" help:"Its private key. ($$${env})"`
}

// Config returns what the flags say; nil if nothing is said.
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
		return nil, errors.New("--cert-file and --key-file (or ROCKPOOL_CERT_FILE and ROCKPOOL_KEY_FILE) go together")
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
