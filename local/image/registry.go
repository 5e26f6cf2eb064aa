package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/rockpool/rockpool/runtime"
)

// registries asks registries, with the credentials that their tools left on
// this machine.
type registries struct{ transport *guard }

func newRegistries(plain []string) *registries {
	return &registries{&guard{
		plain: plain,
		next: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			ForceAttemptHTTP2:     true,
			TLSHandshakeTimeout:   10 * time.Second,
			ResponseHeaderTimeout: 20 * time.Second,
			IdleConnTimeout:       30 * time.Second,
		},
	}}
}

// close ends the connections that nobody uses.
func (r *registries) close() { r.transport.next.CloseIdleConnections() }

// open looks an image up; digest, unless it is "", takes the place of the
// reference's tag. Its layers can be read until ctx ends.
func (r *registries) open(ctx context.Context, ref name.Reference, digest string) (*source, error) {
	if digest != "" {
		ref = ref.Context().Digest(digest)
	}
	s, err := r.read(ctx, ref)
	if err != nil {
		return nil, told(ctx, ref, err)
	}
	return s, nil
}

func (r *registries) read(ctx context.Context, ref name.Reference) (*source, error) {
	image, err := remote.Image(ref, r.options(ctx)...)
	if err != nil {
		return nil, err
	}
	manifest, err := image.Manifest()
	if err != nil {
		return nil, broken("its manifest can't be read", err)
	}
	// Of a size of -1 the client would read as much as comes.
	if size := manifest.Config.Size; size < 0 || size > maxDocument {
		return nil, tooLarge("its configuration has %d bytes", size)
	}
	rawManifest, err := image.RawManifest()
	if err != nil {
		return nil, err
	}
	rawConfig, err := image.RawConfigFile()
	if err != nil {
		return nil, err
	}
	return newSource(rawManifest, rawConfig, func(l v1.Descriptor) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) {
			blob, err := image.LayerByDigest(l.Digest)
			if err != nil {
				return nil, told(ctx, ref, err)
			}
			content, err := blob.Compressed()
			if err != nil {
				return nil, told(ctx, ref, err)
			}
			return content, nil
		}
	})
}

func (r *registries) options(ctx context.Context) []remote.Option {
	return []remote.Option{
		remote.WithContext(ctx), remote.WithPlatform(here()), remote.WithTransport(r.transport),
		remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithUserAgent("rockpool"),
		remote.WithRetryBackoff(remote.Backoff{Duration: 300 * time.Millisecond, Factor: 2, Steps: 2}),
	}
}

// told returns an error with what clients are told of it. What was refused
// needs another reference, or credentials; the rest may be another the next
// time.
func told(ctx context.Context, ref name.Reference, err error) error {
	host := ref.Context().RegistryStr()
	var known *runtime.Error
	var answer *transport.Error
	var plain *plainError
	switch {
	case ctx.Err() != nil:
		return runtime.Wrap(runtime.CodeClusterUnavailable, errors.Join(context.Cause(ctx), err), "the registry %s didn't answer in time", host)
	case errors.As(err, &known):
		return err
	case errors.As(err, &plain):
		return &runtime.Error{Code: runtime.CodeInvalidInput, Field: "image", Err: err, Message: fmt.Sprintf(
			"the registry %s can't be asked over TLS, and is no loopback address: --image-plain-http %s lets it be asked without", host, plain.host)}
	case errors.As(err, &answer):
		return refused(host, ref, answer)
	case errors.Is(err, remote.ErrSchema1):
		return broken("it is of a kind that is no longer made: push it again with a newer tool", err)
	case strings.HasPrefix(err.Error(), "no child with platform"): // the client has no type for it
		return broken(fmt.Sprintf("%s isn't there for %s", ref, here()), err)
	}
	return runtime.Wrap(runtime.CodeClusterUnavailable, err, "the registry %s can't be reached", host)
}

func refused(host string, ref name.Reference, answer *transport.Error) error {
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return &runtime.Error{Code: runtime.CodeInvalidInput, Field: "image", Err: answer, Message: fmt.Sprintf(
			"the registry %s doesn't show %s to this server: log in there as the server's user, or check the name", host, ref.Context().RepositoryStr())}
	case http.StatusNotFound:
		return &runtime.Error{Code: runtime.CodeInvalidInput, Field: "image", Err: answer, Message: fmt.Sprintf("the registry %s has no %s", host, ref)}
	default:
		return runtime.Wrap(runtime.CodeClusterUnavailable, answer, "the registry %s answers with the status %d", host, answer.StatusCode)
	}
}

// A guard lets no request out without TLS but to this machine itself, and to
// registries that were named for that. A registry elsewhere can't lead to this
// machine, nor in circles, and only its blobs may be large.
type guard struct {
	plain []string
	next  *http.Transport
}

// A plainError says that a request had to be made without TLS.
type plainError struct{ host string }

func (e *plainError) Error() string { return "no request without TLS to " + e.host }

func (g *guard) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.URL.Scheme != "https" && !isLoopback(q.URL.Hostname()) && !slices.Contains(g.plain, q.URL.Host) {
		return nil, &plainError{q.URL.Host}
	}
	first, redirects := q, 0
	for ; first.Response != nil && first.Response.Request != nil; redirects++ {
		if first = first.Response.Request; redirects == maxRedirects {
			return nil, broken(fmt.Sprintf("its registry redirects more than %d times", maxRedirects), nil)
		}
	}
	if isLoopback(q.URL.Hostname()) && !isLoopback(first.URL.Hostname()) {
		return nil, broken("its registry redirects to this server's own machine", nil)
	}
	answer, err := g.next.RoundTrip(q)
	if err == nil && !strings.Contains(first.URL.Path, "/blobs/") {
		answer.Body = &document{answer.Body, maxDocument}
	}
	return answer, err
}

const maxRedirects = 10

// A document is an answer that is held in memory, and may have so many bytes yet.
type document struct {
	io.ReadCloser
	left int
}

func (d *document) Read(p []byte) (int, error) {
	n, err := d.ReadCloser.Read(p)
	if d.left -= n; d.left < 0 {
		return n, tooLarge("the registry's answer has more than %s", size(maxDocument))
	}
	return n, err
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
