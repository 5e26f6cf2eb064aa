package nomad

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
)

// callWithin bounds one attempt of a call.
const callWithin = 10 * time.Second

// Pauses between attempts.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

// pauses are growing pauses with jitter, so that many who failed together don't
// come again together.
type pauses struct{ next time.Duration }

// wait waits for the next pause, or until ctx ends.
func (p *pauses) wait(ctx context.Context) error { return p.waitUpTo(ctx, lastPause) }

func (p *pauses) waitUpTo(ctx context.Context, most time.Duration) error {
	p.next = cmp.Or(p.next, firstPause)
	pause := p.next/2 + rand.N(p.next/2+1)
	p.next = min(2*p.next, most)
	return sleep(ctx, pause)
}

func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// call calls Nomad's API, in its turn among so many at once, and again while
// Nomad doesn't answer, for as long as Config.Patience and ctx allow. So do must
// be idempotent. Errors are those of explained.
func (c *Cluster) call(ctx context.Context, what string, do func(context.Context) error) error {
	ctx, done := c.living(ctx)
	defer done()
	end := time.Now().Add(c.config.Patience)
	var p pauses
	for {
		err := c.attempt(ctx, do)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !transient(err) || time.Now().After(end) {
			return c.explained(what, err)
		}
		if err := p.wait(ctx); err != nil {
			return err
		}
	}
}

// attempt calls once.
func (c *Cluster) attempt(ctx context.Context, do func(context.Context) error) error {
	ctx, done := c.living(ctx)
	defer done()
	select {
	case c.calls <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-c.calls }()
	if c.life.Err() != nil { // which ctx may not know yet
		return context.Cause(c.life)
	}
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	return do(ctx)
}

// living returns a context that also ends with the cluster's life, pauses and
// calls under way included, until done is called.
func (c *Cluster) living(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.life, func() { cancel(context.Cause(c.life)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

func query(ctx context.Context) *api.QueryOptions   { return (&api.QueryOptions{}).WithContext(ctx) }
func writing(ctx context.Context) *api.WriteOptions { return (&api.WriteOptions{}).WithContext(ctx) }

// status returns the HTTP status and the text that Nomad answered err with; 0:
// it didn't answer.
func status(err error) (int, string) {
	var answer api.UnexpectedResponseError
	if errors.As(err, &answer) {
		return answer.StatusCode(), answer.Body()
	}
	return 0, ""
}

// passing are what Nomad says, always as 500, while it can't but will soon.
var passing = []string{
	"No cluster leader", "not the leader", "leadership", "Not ready to serve consistent reads", "rpc error: EOF",
	"connection refused", "connection reset", "i/o timeout", "broken pipe", "session shutdown", "stream closed", "timeout",
	"raft is already shutdown", "No path to region", "No path to node", "keyring", "Unknown node", "node lookup failed",
}

// errStale is an answer that is older than what was written before.
var errStale = errors.New("the answer is older than what was written")

// transient reports whether trying again at once can help.
func transient(err error) bool {
	code, text := status(err)
	switch {
	case code == http.StatusTooManyRequests, code == http.StatusBadGateway, code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
		return true
	case code == http.StatusInternalServerError:
		for _, word := range passing {
			if strings.Contains(text, word) {
				return true
			}
		}
		return false
	case code != 0:
		return false
	}
	var network net.Error
	return err == errStale || errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded)
}

func notFound(err error) bool {
	code, _ := status(err)
	return code == http.StatusNotFound
}

// explained returns err as clients are told of it: CLUSTER_UNAVAILABLE. The log
// has all of it, except secrets.
func (c *Cluster) explained(what string, err error) error {
	var known *runtime.Error
	if errors.As(err, &known) {
		return err
	}
	err = c.redact(err)
	switch code, _ := status(err); {
	case code == http.StatusForbidden:
		return runtime.Wrap(runtime.CodeClusterUnavailable, err, "%s: Nomad refuses it: the server's token lacks a permission (docs/nomad.md has the policy)", what)
	case code == 0 || transient(err):
		return runtime.Wrap(runtime.CodeClusterUnavailable, err, "%s: Nomad doesn't answer", what)
	default:
		return runtime.Wrap(runtime.CodeClusterUnavailable, err, "%s: Nomad refuses it; the server's log says why", what)
	}
}

// redact returns err without token and password, should anything ever repeat them.
func (c *Cluster) redact(err error) error {
	secrets := []string{c.nomad.settings.SecretID}
	if auth := c.nomad.settings.HttpAuth; auth != nil {
		secrets = append(secrets, auth.Password)
	}
	text := err.Error()
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "[secret]")
		}
	}
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}
