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
	"syscall"
	"time"
	"unicode"

	"github.com/rockpool/rockpool/local/image/fault"
	"github.com/rockpool/rockpool/runtime"
)

// A guard decides whom the server asks for images. No request goes out without
// TLS but to this machine itself, and to registries that were named for that; none
// to a host that isn't permitted, whoever leads there; and no connection is made to
// addresses that only a machine itself has, unless the host was named.
type guard struct {
	plain     []string // hosts with ports, asked without TLS
	permitted []string // hosts, with ports where those are others than TLS's own, or "*." and what they end with; none: all
	stall     time.Duration
	proxy     func(*http.Request) (*url.URL, error)
	next      *http.Transport
}

// A visit is what is asked for one reference: a registry, and whoever that leads
// to.
type visit struct {
	*guard
	registry string
}

// RoundTrip implements http.RoundTripper.
func (v visit) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.URL.Scheme != "https" && !isLoopback(q.URL.Hostname()) && !slices.Contains(v.plain, q.URL.Host) {
		return nil, &plainError{q.URL.Host}
	}
	first, redirects := q, 0
	for ; first.Response != nil && first.Response.Request != nil; redirects++ {
		if first = first.Response.Request; redirects == maxRedirects {
			return nil, fault.Broken(fmt.Sprintf("its registry redirects more than %d times", maxRedirects), nil)
		}
	}
	if err := v.leads(q.URL); err != nil {
		return nil, err
	}
	via, err := v.proxy(q)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithValue(q.Context(), viaKey{}, via))
	answer, err := v.next.RoundTrip(q.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	answer.Request = q
	answer.Body = &paced{ReadCloser: answer.Body, cancel: cancel, within: v.stall, left: v.stall}
	if !strings.Contains(first.URL.Path, "/blobs/") { // only those may be large
		answer.Body = &document{answer.Body, maxDocument}
	}
	return answer, nil
}

const maxRedirects = 10

// leads returns an error where a registry may not lead to a place.
func (v visit) leads(to *url.URL) error {
	host := hostOf(to)
	switch {
	case strings.ContainsFunc(to.Host, func(r rune) bool { return r > unicode.MaxASCII }): // it would be looked up by another name
		return fault.Broken("its registry leads to a name that isn't of ASCII", nil)
	case !v.permits(host):
		return fault.Broken(fmt.Sprintf("its registry %s leads to %.200s, which isn't asked: --image-registries names who is", v.registry, host), nil)
	case isLoopback(to.Hostname()) && host != v.registry && !slices.Contains(v.permitted, host) && !slices.Contains(v.plain, host):
		return fault.Broken("its registry leads to this server's own machine", nil)
	}
	if ip, err := netip.ParseAddr(to.Hostname()); err == nil { // a proxy might go there
		return v.connects(host, ip)
	}
	return nil
}

// permits reports whether a host may be asked.
func (g *guard) permits(host string) bool {
	return len(g.permitted) == 0 || slices.ContainsFunc(g.permitted, func(p string) bool {
		end, isEnd := strings.CutPrefix(p, "*")
		return p == host || isEnd && strings.HasSuffix(host, end)
	})
}

// connects returns an error where an address may not be what a host's name means.
func (g *guard) connects(host string, ip netip.Addr) error {
	named := slices.Contains(g.plain, host) || slices.Contains(g.permitted, host)
	own := ip.Unmap().IsLoopback() || ip.Unmap().IsUnspecified()
	if !isMachines(ip) || own && isLoopback(hostname(host)) || named && !own || slices.Contains(g.plain, host) {
		return nil
	}
	return fault.Broken(fmt.Sprintf("%.200s is an address that registries don't have (link-local, or a machine's own): --image-registries may name it", host), nil)
}

type viaKey struct{}

// dial connects to a host, or to a proxy that the server's environment names,
// which may be anywhere.
func (g *guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: connectWithin}
	if via, ok := ctx.Value(viaKey{}).(*url.URL); !ok || via == nil || via.Hostname() != hostname(address) {
		dialer.Control = func(_, to string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(to)
			if err != nil {
				return err
			}
			return g.connects(strings.ToLower(strings.TrimSuffix(address, ":443")), at.Addr())
		}
	}
	return dialer.DialContext(ctx, network, address)
}

// hostOf returns the host of an address as settings name it.
func hostOf(u *url.URL) string {
	host := strings.ToLower(u.Host)
	if u.Scheme == "https" {
		host = strings.TrimSuffix(host, ":443")
	}
	return host
}

func hostname(host string) string { return (&url.URL{Host: host}).Hostname() }

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// machines are networks where no registry is: what answers there is the machine
// itself, or a cloud that tells it its keys.
func machines() []netip.Prefix {
	var all []netip.Prefix
	for _, text := range []string{
		"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "100.100.100.200/32", "168.63.129.16/32", "224.0.0.0/3",
		"::/127", "fe80::/10", "fec0::/10", "ff00::/8", "fd00:ec2::/32", "fd20:ce::/32",
	} {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// isMachines reports whether an address is in one of them, also as IPv6 writes
// addresses of IPv4.
func isMachines(ip netip.Addr) bool {
	ip = ip.WithZone("").Unmap()
	if bytes := ip.As16(); ip.Is6() && netip.MustParsePrefix("64:ff9b::/96").Contains(ip) {
		ip = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	return slices.ContainsFunc(machines(), func(p netip.Prefix) bool { return p.Contains(ip) })
}

// A plainError says that a request had to be made without TLS.
type plainError struct{ host string }

func (e *plainError) Error() string { return "no request without TLS to " + e.host }

// A document is an answer that is held in memory, and may have so many bytes yet.
type document struct {
	io.ReadCloser
	left int
}

func (d *document) Read(p []byte) (int, error) {
	n, err := d.ReadCloser.Read(p)
	if d.left -= n; d.left < 0 {
		return n, fault.TooLarge("the registry's answer has more than %s", fault.Size(maxDocument))
	}
	return n, err
}

// errDenied is the error of a reference whose registry isn't permitted.
func errDenied(host string) error {
	return runtime.Invalid("image", "can't be used: the registry %.200s isn't one of those that this server asks, which --image-registries names", host)
}
