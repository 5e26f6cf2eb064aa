package routes

import (
	"go.uber.org/zap"

	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/rockpool/rockpool/runtime"
)

// checkProxied refuses requests that a proxy passed on, while the server requires no token. Such a
// server trusts its machine. With a proxy in front, everyone who reaches the proxy would be an
// administrator.
//
// A proxy that sends none of these signs, for example a forwarded port, isn't detected.
func (g *Gate) checkProxied(r *http.Request) *runtime.Error {
	sign := proxySign(r)
	if sign == "" || !g.Open() {
		return nil
	}
	g.proxied.Do(func() {
		g.Logger.Warn("a request came through a proxy and was refused, because the server requires no token: create one with rockpool token create; later ones aren't logged", zap.String("sign", sign))
	})
	return runtime.Errorf(runtime.CodeForbidden,
		"this request came through a proxy (its sign: %s), and the server requires no token: everyone who reaches the proxy could do everything. "+
			"Create a token on the server's machine: rockpool token create admin --role ADMIN; docs/guides/proxies.md says more", sign)
}

// proxySign returns what shows that a proxy passed a request on, or "".
func proxySign(r *http.Request) string {
	var headers []string
	for name := range r.Header {
		if ofProxy(name) {
			headers = append(headers, "the header "+name)
		}
	}
	switch host := hostName(r.Host); {
	case len(headers) > 0:
		return slices.Min(headers)
	case !r.ProtoAtLeast(1, 1):
		return "HTTP/1.0, as nginx speaks it by default"
	case !ofLoopback(host) && !strings.HasPrefix(r.URL.Path, "/agent/"): // Nomad's nodes use that path
		return "the host name " + host
	}
	return ""
}

// ofLoopback reports whether a host name means the machine of the client.
func ofLoopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback() || strings.EqualFold(host, "localhost") || strings.HasSuffix(strings.ToLower(host), ".localhost")
}

// ofProxy reports whether only proxies, load balancers and tunnels send a header of this name.
func ofProxy(name string) bool {
	begins := func(with string) bool { return strings.HasPrefix(name, with) }
	return slices.ContainsFunc([]string{"X-Forwarded", "Cf-", "X-Amz-Cf-", "X-Envoy-", "X-Azure-", "X-Appengine-", "Fastly-", "Fly-", "Tailscale-"}, begins) ||
		slices.Contains([]string{
			"Forwarded", "Forwarded-For", "Via", "X-Real-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "X-Proxyuser-Ip", "X-Original-Forwarded-For", "X-Original-Host", "X-Scheme",
			"True-Client-Ip", "Client-Ip", "Cdn-Loop", "X-Varnish", "X-Arr-Log-Id", "X-Arr-Ssl", "X-Vercel-Id", "X-Github-Request-Id",
		}, name)
}
