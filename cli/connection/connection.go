// Package connection has what commands need of a server: its flags, and a client
// that waits while the server can't answer.
package connection

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/rockpool/rockpool/client"
)

// DefaultServer is where a server is looked for that nobody named.
const DefaultServer = "http://127.0.0.1:8080"

// Patience is how long commands wait for a server that can't be reached any more.
const Patience = time.Minute

// Flags name the server.
type Flags struct {
	Server    string `env:"ROCKPOOL_SERVER" placeholder:"URL" help:"The server to use. (http://127.0.0.1:8080; $$${env})"`
	TokenFile string `env:"ROCKPOOL_TOKEN_FILE" placeholder:"FILE" complete:"file" help:"File with the token that the server needs. (The token itself in $$ROCKPOOL_TOKEN, else the file $$${env})"`
	TLS       `embed:""`
}

// url returns the server's address.
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

// Client returns a client of the server.
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

// Patient returns a patient Sender of the server.
func (f Flags) Patient() (client.Sender, error) {
	c, err := f.Client()
	if err != nil {
		return nil, err
	}
	return Patient(c, Patience), nil
}

// Token returns the token in the file of the flag --token-file, in the variable ROCKPOOL_TOKEN, or in the file of the
// variable ROCKPOOL_TOKEN_FILE, the first of them that is there; "" if none is.
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

// Absent reports whether nobody listens where a server should.
func Absent(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// ErrNoServer says that nobody listens.
var ErrNoServer = errors.New("no server listens")

// noServer says what to do where nobody listens.
func noServer(c *client.Client) error {
	return fmt.Errorf("%w at %s: start one with `rockpool serve` (from the sources: `make run`), or name another with --server", ErrNoServer, c.URL())
}

// A LostError is that a server can't be reached any more that was there.
type LostError struct {
	Server string // its address
	Err    error
}

// Lost makes a *LostError of an error of the connection that passes; another one stays as it is.
func Lost(c *client.Client, err error) error {
	var answered *client.Error
	if err == nil || errors.As(err, &answered) || !client.Passing(err) {
		return err
	}
	return &LostError{strings.TrimSuffix(c.URL(), "/graphql"), err}
}

// Error has the system's word for the cause, without the calls that met it.
func (e *LostError) Error() string {
	return fmt.Sprintf("the server at %s can't be reached any more: %s", e.Server, Cause(e.Err))
}

// Cause returns the system's word for why a connection broke, for example "connection refused". Other errors say all of theirs.
func Cause(err error) string {
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

// Persistent returns a Sender for operations on a server that was there: it repeats those that are safe to repeat also
// where nobody listens, since the server may be starting again. Its errors are as Lost's.
func Persistent(c *client.Client) client.Sender {
	return c.Around(func(ctx context.Context, send func(context.Context) error) error {
		return Lost(c, client.Persist(ctx, Patience, client.Passing, func() error { return send(ctx) }))
	})
}

// Patient returns a Sender for operations that are safe to repeat. It repeats them for a
// while when the server is there, but doesn't answer.
func Patient(c *client.Client, patience time.Duration) client.Sender {
	return Reporting(c, patience, func(error) {})
}

// Reporting is Patient that reports each error after which it tries again.
func Reporting(c *client.Client, patience time.Duration, report func(err error)) client.Sender {
	return c.Around(func(ctx context.Context, send func(context.Context) error) error {
		again := func(err error) bool {
			passing := client.Passing(err) && !Absent(err)
			if passing && ctx.Err() == nil {
				report(err)
			}
			return passing
		}
		err := client.Persist(ctx, patience, again, func() error { return send(ctx) })
		if Absent(err) {
			return noServer(c)
		}
		if untrusted := (*tls.CertificateVerificationError)(nil); errors.As(err, &untrusted) {
			return fmt.Errorf("%w: name the authority of the server's certificate with --ca-file (or ROCKPOOL_CA_FILE)", err)
		}
		return err
	})
}

// Alone reports whether a command may start a server for itself: neither a server nor a token was named, and no server
// listens. With a token it returns an error instead: that server would know neither its tenant nor its quotas.
func (f Flags) Alone(ctx context.Context) (bool, error) { return f.alone(ctx, DefaultServer) }

func (f Flags) alone(ctx context.Context, address string) (bool, error) {
	if f.Server != "" || !nobodyListens(ctx, address) {
		return false, nil
	}
	if f.TokenFile != "" || os.Getenv("ROCKPOOL_TOKEN") != "" {
		return false, fmt.Errorf("%w at %s, and a command with a token starts none for itself: start the server, name another one with --server, or unset ROCKPOOL_TOKEN_FILE and ROCKPOOL_TOKEN", ErrNoServer, address)
	}
	return true, nil
}

// nobodyListens reports whether no server listens at an address.
func nobodyListens(ctx context.Context, address string) bool {
	base, err := url.Parse(address)
	if err != nil {
		return false
	}
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", base.Host)
	if err == nil {
		_ = conn.Close()
	}
	return Absent(err)
}
