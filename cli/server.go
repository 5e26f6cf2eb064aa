package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/rockpool/rockpool/client"
)

// DefaultServer is where a server is looked for that nobody named.
const DefaultServer = "http://127.0.0.1:8080"

// serverFlag names the server.
type serverFlag struct {
	Server    string `env:"ROCKPOOL_SERVER" placeholder:"URL" help:"The server to use. (http://127.0.0.1:8080; $$${env})"`
	TokenFile string `env:"ROCKPOOL_TOKEN_FILE" placeholder:"FILE" complete:"file" help:"File with the token that the server needs. ($$${env}, or the token itself in $$ROCKPOOL_TOKEN)"`
}

// url returns the server's address.
func (f serverFlag) url() (string, error) {
	if f.Server == "" {
		return DefaultServer, nil
	}
	base, err := url.Parse(f.Server)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return "", fmt.Errorf("--server (or ROCKPOOL_SERVER) is %q, but must be a URL, for example %s", f.Server, DefaultServer)
	}
	return f.Server, nil
}

func (f serverFlag) client() (*client.Client, error) {
	address, err := f.url()
	if err != nil {
		return nil, err
	}
	token, err := Token(f.TokenFile)
	if err != nil {
		return nil, err
	}
	return client.New(address).WithToken(token), nil
}

// patient returns a patient Sender of the server.
func (f serverFlag) patient() (client.Sender, error) {
	c, err := f.client()
	if err != nil {
		return nil, err
	}
	return patient(c, serverPatience), nil
}

// Token returns the token in a file, or in the variable ROCKPOOL_TOKEN if no file
// is named; "" if there is none.
func Token(file string) (string, error) {
	if file == "" {
		return os.Getenv("ROCKPOOL_TOKEN"), nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--token-file (or ROCKPOOL_TOKEN_FILE): %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// absent reports whether nobody listens where a server should.
func absent(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

var errNoServer = errors.New("no server listens")

// noServer says what to do where nobody listens.
func noServer(c *client.Client) error {
	return fmt.Errorf("%w at %s: start one with `rockpool serve` (from the sources: `make run`), or name another with --server", errNoServer, c.URL())
}

// patient returns a Sender for operations that are safe to repeat. It repeats them for a
// while when the server is there, but doesn't answer.
func patient(c *client.Client, patience time.Duration) client.Sender {
	return c.Around(func(ctx context.Context, send func(context.Context) error) error {
		again := func(err error) bool { return client.Passing(err) && !absent(err) }
		err := client.Persist(ctx, patience, again, func() error { return send(ctx) })
		if absent(err) {
			return noServer(c)
		}
		return err
	})
}
