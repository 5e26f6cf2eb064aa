// Package command has what commands share: their flags for a server, clients that retry while the
// server is unavailable, signals, exit codes, and hints after an error.
package command

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/rockpool/rockpool/client"
)

// DefaultServer is the address if neither --server nor ROCKPOOL_SERVER is given.
const DefaultServer = "http://127.0.0.1:8080"

// Patience is how long commands retry after they lose the server.
const Patience = time.Minute

// Lease is how many seconds the server lets a program or batch run after its command is gone. Commands
// renew it until then.
const Lease = 60

// KeepLease renews the lease of an execution or batch until ctx ends.
func KeepLease(ctx context.Context, c *client.Client, id string) {
	const every = Lease * time.Second / 6
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		// The next one makes up for one that fails.
		within, cancel := context.WithTimeout(ctx, every)
		_, _ = client.RenewLease(within, c, id)
		cancel()
	}
}

// Flags select the server and the token.
type Flags struct {
	Server    string `env:"ROCKPOOL_SERVER" placeholder:"URL" help:"URL of the server. (http://127.0.0.1:8080; $$${env})"`
	TokenFile string `env:"ROCKPOOL_TOKEN_FILE" placeholder:"FILE" complete:"file" help:"File with your token. (the token in $$ROCKPOOL_TOKEN, else the file in $$${env})"`
	TLS       `embed:""`
}

func (f Flags) url() (string, error) {
	if f.Server == "" {
		return DefaultServer, nil
	}
	base, err := url.Parse(f.Server)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return "", fmt.Errorf("--server (or ROCKPOOL_SERVER) is %q, but must be a URL, for example %s", f.Server, DefaultServer)
	}
	return f.Server, nil
}

// Client returns a client of the server. It doesn't retry, and doesn't connect yet.
func (f Flags) Client() (*client.Client, error) {
	address, err := f.url()
	if err != nil {
		return nil, err
	}
	token, err := Token(f.TokenFile)
	if err != nil {
		return nil, err
	}
	trust, err := f.Config()
	if err != nil {
		return nil, err
	}
	c := client.New(address).WithToken(token)
	if trust != nil {
		c = c.WithTLS(trust)
	}
	return c, nil
}

// Patient returns a Sender of the server that retries; see the function Patient.
func (f Flags) Patient() (client.Sender, error) {
	c, err := f.Client()
	if err != nil {
		return nil, err
	}
	return Patient(c, Patience), nil
}

// Token returns the caller's token; "" if none is given. The flag --token-file takes precedence
// over the variable ROCKPOOL_TOKEN, and that over the variable ROCKPOOL_TOKEN_FILE. file is the
// flag's value, which kong also sets from the last variable.
func Token(file string) (string, error) {
	token := os.Getenv("ROCKPOOL_TOKEN")
	if file == "" || token != "" && file == os.Getenv("ROCKPOOL_TOKEN_FILE") {
		return token, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--token-file (or ROCKPOOL_TOKEN_FILE): %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// absent reports whether err means that no server listens at the address.
func absent(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// ErrNoServer means that no server listens at the address.
var ErrNoServer = errors.New("no server listens")

// A LostError means that a server was reachable and no longer is.
type LostError struct {
	Server string // its address
	Err    error
}

// Lost turns a temporary connection error into a *LostError. It returns other errors unchanged.
func Lost(c *client.Client, err error) error {
	if err == nil || errors.As(err, new(*client.Error)) || !client.Passing(err) {
		return err
	}
	return &LostError{strings.TrimSuffix(c.URL(), "/graphql"), err}
}

// Error names the server and the system's message for the cause, without the failed calls.
func (e *LostError) Error() string {
	return fmt.Sprintf("lost the connection to the server at %s: %s", e.Server, Cause(e.Err))
}

// Cause returns the system's message for why a connection broke, for example "connection refused".
// For other errors it returns the whole message.
func Cause(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return err.Error()
}

// Explained returns the error with plain words first, if it is about a host name that can't be
// resolved or a server without TLS. It returns other errors unchanged.
func Explained(err error) error {
	var lookup *net.DNSError
	switch {
	case errors.As(err, &lookup):
		return fmt.Errorf("the host name %s can't be resolved; check --server (or ROCKPOOL_SERVER): %w", lookup.Name, err)
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("the server doesn't use TLS, but its URL begins with https://: %w", err)
	}
	return err
}

// Persistent returns a Sender for a server that has responded before. It retries operations that
// are safe to repeat for up to Patience, even when no server listens: it may be restarting. Its
// errors are those of Lost.
func Persistent(c *client.Client) client.Sender {
	return c.Around(func(ctx context.Context, send func(context.Context) error) error {
		return Lost(c, client.Persist(ctx, Patience, client.Passing, func() error { return send(ctx) }))
	})
}

// Patient returns a Sender for operations that are safe to repeat. It retries them for up to
// patience while the server listens but doesn't respond. If no server listens, it fails immediately
// with ErrNoServer.
func Patient(c *client.Client, patience time.Duration) client.Sender {
	return Reporting(c, patience, func(error) {})
}

// Reporting is like Patient, and calls report with each error after which it retries.
func Reporting(c *client.Client, patience time.Duration, report func(err error)) client.Sender {
	return c.Around(func(ctx context.Context, send func(context.Context) error) error {
		again := func(err error) bool {
			passing := client.Passing(err) && !absent(err)
			if passing && ctx.Err() == nil {
				report(err)
			}
			return passing
		}
		err := client.Persist(ctx, patience, again, func() error { return send(ctx) })
		if absent(err) {
			return fmt.Errorf("%w at %s: start one with `rockpool serve` (from the sources: `make run`), or give another one with --server", ErrNoServer, c.URL())
		}
		if errors.As(err, new(*tls.CertificateVerificationError)) {
			return fmt.Errorf("%w: give the certificate of the server's authority with --ca-file (or ROCKPOOL_CA_FILE)", err)
		}
		return err
	})
}

// NeedsPrivate reports whether a command should start a temporary server: neither a server nor a
// token is given, and no server listens at DefaultServer. With a token it returns an error instead:
// a temporary server would know neither the token's tenant nor its quotas.
func (f Flags) NeedsPrivate(ctx context.Context) (bool, error) {
	return f.needsPrivate(ctx, DefaultServer)
}

// needsPrivate is NeedsPrivate with another default address, for tests.
func (f Flags) needsPrivate(ctx context.Context, address string) (bool, error) {
	if f.Server != "" || !noListener(ctx, address) {
		return false, nil
	}
	if f.TokenFile != "" || os.Getenv("ROCKPOOL_TOKEN") != "" {
		return false, fmt.Errorf("%w at %s, and with a token no temporary server is started: start the server, give another one with --server, or unset ROCKPOOL_TOKEN_FILE and ROCKPOOL_TOKEN", ErrNoServer, address)
	}
	return true, nil
}

func noListener(ctx context.Context, address string) bool {
	base, err := url.Parse(address)
	if err != nil {
		return false
	}
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", base.Host)
	if err == nil {
		_ = conn.Close()
	}
	return absent(err)
}

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
