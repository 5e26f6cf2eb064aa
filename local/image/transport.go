package image

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"

	"github.com/rockpool/rockpool/local/image/tree"
	"github.com/rockpool/rockpool/runtime"
)

// A registryTransport sends the requests for one reference: to its registry, and where that redirects.
type registryTransport struct {
	*registries
	registry string
}

func (v registryTransport) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.URL.Scheme != "https" && !isLoopback(q.URL.Hostname()) && !slices.Contains(v.plain, q.URL.Host) {
		return nil, &plainError{q.URL.Host}
	}
	// A redirected request has the response that caused it. Only the first request has none.
	first, redirects := q, 0
	for ; first.Response != nil && first.Response.Request != nil; redirects++ {
		if first = first.Response.Request; redirects == maxRedirects {
			return nil, tree.Invalid(fmt.Sprintf("its registry redirects more than %d times", maxRedirects), nil)
		}
	}
	if err := v.checkRedirect(q.URL); err != nil {
		return nil, err
	}
	if err := v.pauses.check(hostOf(q.URL)); err != nil {
		return nil, err
	}
	via, err := v.proxy(q)
	if err != nil {
		return nil, err
	}
	// The body's Close, or a stall, cancels the request.
	ctx, cancel := context.WithCancel(context.WithValue(q.Context(), viaKey{}, via))
	answer, err := v.next.RoundTrip(q.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	answer.Request = q
	answer.Body = &pacedBody{ReadCloser: answer.Body, cancel: cancel, within: v.stall, left: v.stall}
	if err := v.pauses.note(hostOf(q.URL), answer); err != nil {
		_ = answer.Body.Close()
		return nil, err
	}
	if !strings.Contains(first.URL.Path, "/blobs/") { // only blobs may be large
		answer.Body = http.MaxBytesReader(nil, answer.Body, maxDocument)
	}
	return answer, nil
}

const maxRedirects = 10

func (v registryTransport) checkRedirect(to *url.URL) error {
	host := hostOf(to)
	switch {
	case strings.ContainsFunc(to.Host, func(r rune) bool { return r > unicode.MaxASCII }): // DNS would get another name
		return tree.Invalid("its registry leads to a host name with non-ASCII characters", nil)
	case !v.permits(host):
		return tree.Invalid(fmt.Sprintf("its registry %s leads to %.200s, which isn't allowed: --image-registries can allow it", v.registry, host), nil)
	case isLoopback(to.Hostname()) && host != v.registry && !slices.Contains(v.permitted, host) && !slices.Contains(v.plain, host):
		return tree.Invalid("its registry leads to this server's own machine", nil)
	}
	if ip, err := netip.ParseAddr(to.Hostname()); err == nil { // a proxy could connect to it
		return v.checkAddress(host, ip)
	}
	return nil
}

func (r *registries) permits(host string) bool {
	return len(r.permitted) == 0 || slices.ContainsFunc(r.permitted, func(p string) bool {
		end, isEnd := strings.CutPrefix(p, "*")
		return p == host || isEnd && strings.HasSuffix(host, end)
	})
}

// checkAddress returns an error if a host's name must not resolve to an address.
func (r *registries) checkAddress(host string, ip netip.Addr) error {
	named := slices.Contains(r.plain, host) || slices.Contains(r.permitted, host)
	own := ip.Unmap().IsLoopback() || ip.Unmap().IsUnspecified()
	if !isLocal(ip) || own && isLoopback(hostname(host)) || named && !own || slices.Contains(r.plain, host) {
		return nil
	}
	return tree.Invalid(fmt.Sprintf("%.200s is link-local or an address of the machine itself, which isn't allowed: --image-registries can allow it", host), nil)
}

type viaKey struct{}

// dial connects to a host, or to a proxy of the server's environment, which may have any address.
func (r *registries) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: connectWithin}
	if via, ok := ctx.Value(viaKey{}).(*url.URL); !ok || via == nil || via.Hostname() != hostname(address) {
		dialer.Control = func(_, to string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(to)
			if err != nil {
				return err
			}
			return r.checkAddress(strings.ToLower(strings.TrimSuffix(address, ":443")), at.Addr())
		}
	}
	return dialer.DialContext(ctx, network, address)
}

// hostOf returns the host of a URL in the form of the settings.
func hostOf(u *url.URL) string {
	host := strings.ToLower(u.Host)
	if u.Scheme == "https" {
		host = strings.TrimSuffix(host, ":443")
	}
	return host
}

func hostname(host string) string { return (&url.URL{Host: host}).Hostname() }

// isLoopback reports whether a host is "localhost" or a loopback address. It resolves no names.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// localNetworks returns the networks that have no registries: the machine itself answers there, or
// a cloud's metadata service with credentials.
func localNetworks() []netip.Prefix {
	var all []netip.Prefix
	for _, text := range []string{
		"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "100.100.100.200/32", "168.63.129.16/32", "224.0.0.0/3",
		"::/127", "fe80::/10", "fec0::/10", "ff00::/8", "fd00:ec2::/32", "fd20:ce::/32",
	} {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// isLocal reports whether an address is in one of these networks, also as IPv4 in IPv6.
func isLocal(ip netip.Addr) bool {
	ip = ip.WithZone("").Unmap()
	if bytes := ip.As16(); ip.Is6() && netip.MustParsePrefix("64:ff9b::/96").Contains(ip) {
		ip = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	return slices.ContainsFunc(localNetworks(), func(p netip.Prefix) bool { return p.Contains(ip) })
}

type plainError struct{ host string }

func (e *plainError) Error() string { return "TLS is required for " + e.host }

// paceBytes is how many bytes of a registry's answer must arrive within Config.Stall: about 1 KiB/s
// by default. A slower answer would occupy one of the slots for pulls until the pull times out. It
// is also the size of a worker's packets, and a worker doesn't wait for ever either.
const paceBytes = maxPacket

// A pacedBody ends with an error if the sender has kept its reader waiting for too long. The
// reader's own time doesn't count. One goroutine reads it.
type pacedBody struct {
	io.ReadCloser
	cancel context.CancelFunc // cancels the request
	within time.Duration      // time for paceBytes
	left   time.Duration      // of within
	came   int                // of paceBytes
	slow   atomic.Bool
}

// Read implements io.Reader. A timer cancels the request when the sender's time is used up.
func (b *pacedBody) Read(p []byte) (int, error) {
	began := time.Now()
	patience := time.AfterFunc(b.left, func() {
		b.slow.Store(true)
		b.cancel()
	})
	n, err := b.ReadCloser.Read(p)
	patience.Stop()
	b.left -= time.Since(began)
	if b.came += n; b.came >= paceBytes {
		b.came, b.left = 0, b.within
	}
	if err != nil && err != io.EOF && b.slow.Load() {
		err = runtime.Wrap(runtime.CodeClusterUnavailable, err,
			"the registry stalled: it sent less than %s in %v, the limit of --image-stall", tree.FormatSize(paceBytes), b.within)
	}
	return n, err
}

// Close implements io.Closer. It also cancels the request.
func (b *pacedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
