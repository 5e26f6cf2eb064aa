package routes

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/rs/cors"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/graph/download"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/runtime"
)

// A Gate refuses requests that aren't for this server or come from a page of another site, before
// their body is read. It serves the dashboard and sign-in itself, because they need fewer checks, and
// restricts what browsers do with responses.
type Gate struct {
	Hosts   []string     // accepted names in the Host header, without port
	Origins []string     // accepted origins in addition to the server's own, for example "https://admin.example.org"
	Open    func() bool  // whether no token is required
	Logger  *zap.Logger  // logs the first request that came through a proxy
	Next    http.Handler // serves what passes

	// Pages responds to requests for the dashboard. It returns false, and does nothing, for others. It
	// may be nil.
	Pages func(w http.ResponseWriter, r *http.Request) bool
	// SignIn serves /auth/. The provider redirects browsers there from another site. So SignIn checks the
	// origin, not the Gate. It may be nil.
	SignIn http.Handler

	proxied sync.Once
}

func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	Restrict(w.Header(), r)
	if status, err := clients.CheckFraming(w, r); err != nil {
		transport.RefuseTyped(w, status, err)
		return
	}
	if err := g.checkProxied(r); err != nil {
		transport.RefuseTyped(w, http.StatusForbidden, err)
		return
	}
	if g.Pages != nil && g.Pages(w, r) {
		return
	}
	if here, is := nameless(r); is {
		r = r.WithContext(r.Context()) // a copy
		r.Host = here.String()
	} else if err := g.checkHost(r); err != nil {
		transport.RefuseTyped(w, http.StatusForbidden, err)
		return
	}
	if g.SignIn != nil && strings.HasPrefix(r.URL.Path, "/auth/") {
		g.SignIn.ServeHTTP(w, r)
		return
	}
	if err := g.checkOrigin(r); err != nil {
		transport.RefuseTyped(w, http.StatusForbidden, err)
		return
	}
	g.Next.ServeHTTP(w, r)
}

// nameless returns the address that a request came to if its program omitted the header Host, which
// HTTP/1.0 allows. Browsers always send it.
func nameless(r *http.Request) (here net.Addr, is bool) {
	here, known := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return here, known && r.Host == "" && !r.ProtoAtLeast(1, 1) && r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == ""
}

// checkHost refuses requests for a name that isn't this server's. A page whose name an attacker
// pointed at this address (DNS rebinding) sends its own name.
func (g *Gate) checkHost(r *http.Request) *runtime.Error {
	name := hostName(r.Host)
	if slices.ContainsFunc(g.Hosts, func(a string) bool { return strings.EqualFold(a, name) }) {
		return nil
	}
	return runtime.Errorf(runtime.CodeForbidden, "this server doesn't accept the host name %q: use another name, or allow it with --allowed-hosts", name)
}

// hostName returns a Host header without its port and brackets.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

// checkOrigin refuses requests that a browser sends for a page of another site, on every transport.
// Programs send no Origin. A browser sends none with a GET for a link or an image, but
// Sec-Fetch-Site then has the page's relation to this server.
func (g *Gate) checkOrigin(r *http.Request) *runtime.Error {
	origin := r.Header.Get("Origin")
	if origin != "" && !sameOrigin(origin, r.Host) && !allowedOrigin(g.Origins, origin) {
		return runtime.Errorf(runtime.CodeForbidden, "requests from pages of %q aren't allowed: allow that origin with --allowed-origins", origin)
	}
	if site := r.Header.Get("Sec-Fetch-Site"); origin == "" && site != "" && site != "same-origin" && site != "none" && r.URL.Path != "/" {
		return runtime.Errorf(runtime.CodeForbidden, "requests from pages of another site aren't allowed")
	}
	return nil
}

// sameOrigin reports whether an origin has this host. The schemes may differ, because a proxy may
// end TLS.
func sameOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && strings.EqualFold(u.Host, host)
}

func allowedOrigin(allowed []string, origin string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool { return strings.EqualFold(a, origin) })
}

// policy forbids browsers everything. It is for responses that aren't pages; pages set their own policies.
const policy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// onlyTLS makes browsers use only TLS, for a year.
const onlyTLS = "max-age=31536000"

// Restrict adds headers that restrict browsers; handlers may replace them. If a request used TLS to
// this server or to its proxy, browsers must use only TLS afterwards. Loopback names are an
// exception, because the rule would also apply to servers on all other ports.
func Restrict(header http.Header, r *http.Request) {
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Content-Security-Policy", policy)
	if clients.Encrypted(r) && !ofLoopback(hostName(r.Host)) {
		header.Set("Strict-Transport-Security", onlyTLS)
	}
}

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

// crossOrigin returns a handler that allows pages of these origins to use next. methods and headers are
// allowed in addition to those of the API. It answers OPTIONS with the methods that next's
// header Allow names. No route of next accepts the method OPTIONS itself.
func crossOrigin(origins, methods, headers []string, next http.Handler) http.Handler {
	pages := cors.New(cors.Options{
		AllowOriginFunc: func(origin string) bool { return allowedOrigin(origins, origin) },
		AllowedMethods:  append(methods, http.MethodGet, http.MethodHead, http.MethodPost),
		AllowedHeaders:  slices.Concat([]string{"Content-Type", "Authorization", "Last-Event-ID", "Range", "If-Range", "If-None-Match"}, transport.PreflightHeaders, headers),
		ExposedHeaders:  []string{"Content-Disposition", "Content-Length", "Content-Range", "ETag", "Mcp-Session-Id", download.LostHeader},
		MaxAge:          600,
	})
	return pages.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodOptions {
			w = &options{ResponseWriter: w}
		}
		next.ServeHTTP(w, r)
	}))
}

// options turns status 405 into 204 without a body.
type options struct {
	http.ResponseWriter
	answered bool
}

// Unwrap supports http.ResponseController.
func (w *options) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *options) WriteHeader(status int) {
	if w.answered = status == http.StatusMethodNotAllowed; w.answered {
		for _, name := range []string{"Content-Type", "Content-Length"} {
			w.Header().Del(name)
		}
		w.Header().Set("Allow", w.Header().Get("Allow")+", "+http.MethodOptions)
		status = http.StatusNoContent
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *options) Write(p []byte) (int, error) {
	if w.answered {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}
