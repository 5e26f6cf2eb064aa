package connection

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

const callWithin = 10 * time.Second

// Backoff returns the pauses between retries.
func Backoff() backoff.Backoff {
	return backoff.Backoff{First: 50 * time.Millisecond, Last: 2 * time.Second, Jitter: true}
}

// Call calls Nomad's API within the budget. While Nomad doesn't answer it retries, for as long as
// Config.Patience, ctx and the group allow. So do must be idempotent. Errors are those of Explain,
// or the cause of the context that ended the call.
func (c *Client) Call(ctx context.Context, what string, do func(context.Context) error) error {
	ctx, release := c.group.Bind(ctx)
	defer release()
	end := time.Now().Add(c.patience)
	p := Backoff()
	for {
		err := c.Attempt(ctx, do)
		if err == nil {
			return nil
		}
		// The cause of the context says more than the error of a call that it ended.
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !Transient(err) || time.Now().After(end) {
			return c.Explain(what, err)
		}
		if err := p.Wait(ctx); err != nil {
			return err
		}
		c.counts.retries.Add(1)
	}
}

// Attempt calls once, within the budget. It returns Nomad's own error.
func (c *Client) Attempt(ctx context.Context, do func(context.Context) error) error {
	ctx, release := c.group.Bind(ctx)
	defer release()
	return c.budget.Do(ctx, func() error {
		if ctx.Err() != nil { // select may choose a free slot although ctx has ended
			return context.Cause(ctx)
		}
		ctx, cancel := context.WithTimeout(ctx, callWithin)
		defer cancel()
		return do(ctx)
	})
}

// Query returns the options of a read that ends with ctx.
func Query(ctx context.Context) *api.QueryOptions { return (&api.QueryOptions{}).WithContext(ctx) }

// Writing returns the options of a write that ends with ctx.
func Writing(ctx context.Context) *api.WriteOptions { return (&api.WriteOptions{}).WithContext(ctx) }

// Status returns the HTTP status and text of Nomad's answer in err, or 0 if there was no answer.
func Status(err error) (int, string) {
	if answer, ok := errors.AsType[api.UnexpectedResponseError](err); ok {
		return answer.StatusCode(), answer.Body()
	}
	return 0, ""
}

// transientTexts are Nomad's texts, always with status 500, for problems that pass soon.
var transientTexts = []string{
	"No cluster leader", "not the leader", "leadership", "Not ready to serve consistent reads", "rpc error: EOF",
	"connection refused", "connection reset", "i/o timeout", "broken pipe", "session shutdown", "stream closed", "timeout",
	"raft is already shutdown", "No path to region", "No path to node", "keyring", "Unknown node", "node lookup failed",
}

// ErrStale says that an answer is older than an earlier write.
var ErrStale = errors.New("the answer of Nomad is older than an earlier write")

// Transient reports whether an immediate retry can help.
func Transient(err error) bool {
	code, text := Status(err)
	switch {
	case code == http.StatusTooManyRequests, code == http.StatusBadGateway, code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
		return true
	case code == http.StatusInternalServerError:
		return slices.ContainsFunc(transientTexts, func(word string) bool { return strings.Contains(text, word) })
	case code != 0:
		return false
	}
	_, network := errors.AsType[net.Error](err)
	return err == ErrStale || network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded)
}

// NotFound reports whether Nomad answered that the requested thing doesn't exist.
func NotFound(err error) bool {
	code, _ := Status(err)
	return code == http.StatusNotFound
}

// IgnoreNotFound returns err, or nil if it says that the requested thing doesn't exist.
func IgnoreNotFound(err error) error {
	if NotFound(err) {
		return nil
	}
	return err
}

// Explain returns err for clients, as CLUSTER_UNAVAILABLE. The log gets all of it, without secrets.
func (c *Client) Explain(what string, err error) error {
	if _, known := errors.AsType[*runtime.Error](err); known {
		return err
	}
	err = c.Redact(err)
	switch code, _ := Status(err); {
	case code == http.StatusForbidden:
		return runtime.Wrap(runtime.CodeClusterUnavailable, err, "%s: Nomad refuses it: the server's token lacks a permission (docs/guides/nomad.md has the policy)", what)
	case code == 0 || Transient(err):
		return runtime.Wrap(runtime.CodeClusterUnavailable, err, "%s: Nomad doesn't answer", what)
	default:
		return runtime.Wrap(runtime.CodeClusterUnavailable, err, "%s: Nomad refuses it; the server's log says why", what)
	}
}

// FirstLine returns the first line of a text of Nomad's, at most 300 bytes of it.
func FirstLine(text string) string {
	const most = 300
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + " …"
	}
	return text
}

// Enforced reports whether a registration was rejected because the job has another index.
func Enforced(err error) bool {
	code, text := Status(err)
	return code == http.StatusInternalServerError && strings.Contains(text, api.RegisterEnforceIndexErrPrefix)
}
