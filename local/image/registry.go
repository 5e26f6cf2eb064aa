package image

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/image/tree"
	"github.com/rockpool/rockpool/runtime"
)

// registries sends requests to registries, with the credentials that are stored on this machine. Requests
// without TLS go only to this machine itself, and to registries that are configured for that. No request
// goes to a host that isn't permitted, even after a redirect. No connection goes to link-local addresses
// or the machine's own, unless the host is configured.
type registries struct {
	keychain  authn.Keychain
	platform  v1.Platform   // platform of the images
	plain     []string      // hosts with ports, used without TLS
	permitted []string      // hosts, with the port unless it is 443, or "*." and a domain; all hosts if there are none
	stall     time.Duration // see Config.Stall
	proxy     func(*http.Request) (*url.URL, error)
	next      *http.Transport // dials with registries.dial
	pauses    *hostPauses
}

func newRegistries(config Config) (*registries, error) {
	r := &registries{
		keychain: loginKeychain{Getenv: os.Getenv}, platform: localPlatform(), plain: config.Plain,
		stall: cmp.Or(config.Stall, DefaultStall), proxy: http.ProxyFromEnvironment, pauses: openPauses(config.Dir),
	}
	for _, host := range config.Registries {
		r.permitted = append(r.permitted, canonical(host))
	}
	r.next = &http.Transport{
		Proxy:                 r.proxy,
		DialContext:           r.dial,
		ForceAttemptHTTP2:     true,
		TLSHandshakeTimeout:   connectWithin,
		ResponseHeaderTimeout: 20 * time.Second,
		IdleConnTimeout:       30 * time.Second,
	}
	if config.CACert != "" {
		text, err := os.ReadFile(config.CACert)
		if err != nil {
			return nil, err
		}
		roots, err := x509.SystemCertPool()
		if err != nil {
			return nil, err
		}
		if !roots.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate", config.CACert)
		}
		r.next.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return r, nil
}

// canonical returns a registry's host as in requests: Docker Hub's differs from its usual name.
func canonical(host string) string {
	if r, err := name.NewRegistry(host); err == nil && !strings.HasPrefix(host, "*") {
		host = r.RegistryStr()
	}
	return strings.TrimSuffix(strings.ToLower(host), ":443")
}

// DefaultStall is the default of Config.Stall.
const DefaultStall = time.Minute

// connectWithin bounds a connection to a registry, and then its TLS handshake. A client waits for
// both, and should learn soon that a registry doesn't answer. In 3 s a connection has sent two
// SYNs.
const connectWithin = 3 * time.Second

func (r *registries) close() { r.next.CloseIdleConnections() }

// open opens an image; a digest other than "" replaces the reference's tag. Its layers can be read
// until ctx ends.
func (r *registries) open(ctx context.Context, ref name.Reference, digest string) (*source, error) {
	if host := canonical(ref.Context().RegistryStr()); !r.permits(host) {
		return nil, runtime.Invalid("image", "can't be used: this server doesn't use the registry %.200s: --image-registries can allow it", host)
	}
	if digest != "" {
		ref = ref.Context().Digest(digest)
	}
	s, err := r.read(ctx, ref)
	if err != nil {
		return nil, r.explain(ctx, ref, err)
	}
	return s, nil
}

func (r *registries) read(ctx context.Context, ref name.Reference) (*source, error) {
	image, err := remote.Image(ref, r.options(ctx, ref)...)
	if err != nil {
		return nil, err
	}
	manifest, err := image.Manifest()
	if err != nil {
		return nil, tree.Invalid("its manifest can't be read", err)
	}
	// For a size of -1 the client would read without limit.
	if size := manifest.Config.Size; size < 0 || size > maxDocument {
		return nil, tree.TooLarge("its configuration has an invalid size: %d bytes", size)
	}
	rawManifest, err := image.RawManifest()
	if err != nil {
		return nil, err
	}
	rawConfig, err := image.RawConfigFile()
	if err != nil {
		return nil, err
	}
	return newSource(rawManifest, rawConfig, r.platform, func(l v1.Descriptor) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) {
			blob, err := image.LayerByDigest(l.Digest)
			if err != nil {
				return nil, r.explain(ctx, ref, err)
			}
			content, err := blob.Compressed()
			if err != nil {
				return nil, r.explain(ctx, ref, err)
			}
			return content, nil
		}
	})
}

func (r *registries) options(ctx context.Context, ref name.Reference) []remote.Option {
	return []remote.Option{
		remote.WithContext(ctx), remote.WithPlatform(r.platform), remote.WithTransport(registryTransport{r, ref.Context().RegistryStr()}),
		remote.WithAuthFromKeychain(r.keychain), remote.WithUserAgent("rockpool"),
		remote.WithRetryPredicate(retryImmediately), remote.WithRetryBackoff(remote.Backoff{Duration: 300 * time.Millisecond, Factor: 2, Steps: 2}),
	}
}

// retryImmediately reports whether to repeat a request immediately: after a broken connection, not a timeout.
func retryImmediately(err error) bool {
	return !timedOut(err) && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, net.ErrClosed))
}

func timedOut(err error) bool {
	slow, ok := errors.AsType[net.Error](err)
	return ok && slow.Timeout()
}

// explain returns an error with a message for clients. A refusal (INVALID_INPUT) needs another
// reference or other credentials; after CLUSTER_UNAVAILABLE a retry can succeed. Text from a
// registry is neither shown nor logged, because it may repeat secrets that it was sent; see ownWords for the
// exception.
func (r *registries) explain(ctx context.Context, ref name.Reference, err error) error {
	host := ref.Context().RegistryStr()
	var known *runtime.Error
	var answer *transport.Error
	var plain *plainError
	var certificate *tls.CertificateVerificationError
	var large *http.MaxBytesError
	switch {
	case ctx.Err() != nil:
		return runtime.Wrap(runtime.CodeClusterUnavailable, errors.Join(context.Cause(ctx), redacted(err)), "the registry %s didn't answer in time", host)
	case errors.As(err, &known):
		return known
	case errors.As(err, &large):
		return tree.TooLarge("the registry's answer is larger than %s", tree.FormatSize(large.Limit))
	case errors.As(err, &plain):
		return &runtime.Error{Code: runtime.CodeInvalidInput, Field: "image", Err: plain, Message: fmt.Sprintf(
			"the registry %s doesn't speak TLS, and isn't on loopback: --image-plain-http %s allows it without TLS", host, plain.host)}
	case errors.As(err, &certificate):
		return runtime.Wrap(runtime.CodeClusterUnavailable, certificate, "this server doesn't trust the certificate of the registry %s: --image-ca-cert can add its authority", host)
	case errors.As(err, &answer):
		return refused(host, ref, answer)
	case errors.Is(err, remote.ErrSchema1):
		return tree.Invalid("it has an outdated format: push it again with a newer tool", redacted(err))
	case strings.HasPrefix(err.Error(), "no child with platform"): // the library has no type for this error
		return tree.Invalid(fmt.Sprintf("%s doesn't exist for %s", ref, r.platform), redacted(err))
	case strings.Contains(err.Error(), "invalid realm in www-authenticate"), strings.Contains(err.Error(), "SSRF protection"): // likewise
		return tree.Invalid(fmt.Sprintf("its registry %s leads to another private address, or to one without TLS, which isn't allowed", host), redacted(err))
	}
	return runtime.Wrap(runtime.CodeClusterUnavailable, redacted(err), "the registry %s is unreachable%s", host, reachReason(err))
}

// reachReason returns why a registry couldn't be reached, without any text of others, if that is known.
func reachReason(err error) string {
	name, unresolved := errors.AsType[*net.DNSError](err)
	switch {
	case unresolved && name.IsNotFound:
		return ": the host name doesn't exist (DNS)"
	case unresolved:
		return ": the host name can't be resolved now (DNS)"
	case errors.Is(err, unix.ECONNREFUSED):
		return ": connection refused"
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return ": there is no route to it"
	case timedOut(err):
		return ": it doesn't answer"
	}
	return ""
}

func refused(host string, ref name.Reference, answer *transport.Error) error {
	err := redacted(answer)
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return &runtime.Error{Code: runtime.CodeInvalidInput, Field: "image", Err: errors.Join(ErrUnknown, errLogin, err), Message: fmt.Sprintf(
			"the registry %s denies access to %s: log in there as the server's user, or check the name", host, ref.Context().RepositoryStr())}
	case http.StatusNotFound:
		return &runtime.Error{Code: runtime.CodeInvalidInput, Field: "image", Err: errors.Join(ErrUnknown, err), Message: fmt.Sprintf("the registry %s has no %s", host, ref)}
	default:
		return runtime.Wrap(runtime.CodeClusterUnavailable, err, "the registry %s answered with status %d", host, answer.StatusCode)
	}
}

// ErrUnknown means that a registry doesn't have an image, or denies access to it.
var ErrUnknown = errors.New("its registry doesn't have it or denies access")

// errLogin means that the registry rejects the server's credentials. Somebody may change them
// without requesting the image again, so the pull is retried.
var errLogin = errors.New("the registry denies access with the server's credentials")

// redacted returns an error for the log without possible secrets: of a URL it keeps only the host,
// and it drops what a registry or its token service wrote.
func redacted(err error) error {
	if answer, ok := errors.AsType[*transport.Error](err); ok {
		where := "a request"
		if q := answer.Request; q != nil {
			where = fmt.Sprintf("%s %s://%s", q.Method, q.URL.Scheme, q.URL.Host)
		}
		return fmt.Errorf("%.500s: status %d", where, answer.StatusCode)
	}
	if request, ok := errors.AsType[*url.Error](err); ok {
		where := "?"
		if u, failed := url.Parse(request.URL); failed == nil {
			where = u.Scheme + "://" + u.Host
		}
		return fmt.Errorf("%s %.500s: %w", request.Op, where, redactedCause(request.Err))
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return fmt.Errorf("%.500s", text)
}

// redactedCause returns the cause of a failed request, unless it may contain text of the other side:
// net/http quotes what it can't parse.
func redactedCause(err error) error {
	switch {
	case is[*transport.Error](err), is[*url.Error](err):
		return redacted(err)
	case is[*net.OpError](err), is[*net.DNSError](err), is[*runtime.Error](err), is[*tls.CertificateVerificationError](err),
		errors.Is(err, io.EOF), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	case timedOut(err):
		return errors.New("it doesn't answer")
	default:
		return errors.New("its answer isn't HTTP, or has an invalid redirect")
	}
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// A Resolver resolves references at registries, for a cluster whose nodes pull images themselves.
// Its methods are safe for concurrent use.
type Resolver struct {
	config     Config
	registries *registries
}

// NewResolver returns a resolver of images for an architecture, named as GOARCH. Of config it uses
// the settings of registries and Skeleton.
func NewResolver(config Config, arch string) (*Resolver, error) {
	r, err := newRegistries(config)
	if err != nil {
		return nil, err
	}
	r.platform.Architecture = arch
	return &Resolver{config, r}, nil
}

// Resolve returns the image that a reference refers to now. INVALID_INPUT names the field image; it
// wraps ErrUnknown if the registry doesn't have the image or denies access. CLUSTER_UNAVAILABLE:
// the registry can't answer now. It takes at most 30 s.
func (r *Resolver) Resolve(ctx context.Context, text string) (runtime.ImagePin, error) {
	ref, err := parse(text, r.config.Plain)
	if err != nil {
		return runtime.ImagePin{}, err
	}
	if ref.registry == nil {
		return runtime.ImagePin{}, tree.Invalid("file: references work on a single machine only", nil)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, resolveWithin, errSlow)
	defer cancel()
	s, err := r.registries.open(ctx, ref.registry, "")
	if err != nil {
		return runtime.ImagePin{}, err
	}
	covered := slices.Clone(r.config.Skeleton.Directories)
	for volume := range s.config.Config.Volumes { // runners can't access volumes
		covered = append(covered, path.Clean("/"+volume))
	}
	pin, err := s.pin(r.config.Skeleton.Home, covered)
	pin.Account = s.config.Config.User
	return pin, err
}
