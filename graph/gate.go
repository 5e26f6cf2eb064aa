package graph

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/graph/transport/framing"
	"github.com/rockpool/rockpool/graph/transport/response"
	"github.com/rockpool/rockpool/runtime"
)

// checkHost refuses requests for names that aren't this server's: a page whose
// name was pointed at this address (DNS rebinding) sends its own.
func checkHost(allowed []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name := hostName(r.Host); !slices.ContainsFunc(allowed, func(a string) bool { return strings.EqualFold(a, name) }) {
			refuse(w, http.StatusForbidden, runtime.Errorf(runtime.CodeForbidden,
				"this server isn't known as %q; names are added with --allowed-hosts", name))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostName returns a Host header without its port and brackets.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

// checkOrigin refuses requests that a browser sends for another site's page,
// on every transport. Programs send no Origin. A browser leaves it out of a GET
// that a link or an image makes, but says in Sec-Fetch-Site whose page it is.
func checkOrigin(allowed []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		if origin != "" && !sameOrigin(origin, r.Host) && !allowedOrigin(allowed, origin) {
			refuse(w, http.StatusForbidden, runtime.Errorf(runtime.CodeForbidden,
				"requests from pages of %q aren't allowed; origins are added with --allowed-origins", origin))
			return
		}
		if site := r.Header.Get("Sec-Fetch-Site"); origin == "" && site != "" && site != "same-origin" && site != "none" && r.URL.Path != "/" {
			refuse(w, http.StatusForbidden, runtime.Errorf(runtime.CodeForbidden, "requests from pages of another site aren't allowed"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func sameOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && strings.EqualFold(u.Host, host)
}

func allowedOrigin(allowed []string, origin string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool { return strings.EqualFold(a, origin) })
}

// RefuseFraming refuses requests whose length was sent twice, or that have too many
// header fields, as a framing.Reader has marked them.
func RefuseFraming(next http.Handler) http.Handler { return framing.Refuse(refuse, next) }

// BoundUnread bounds how long a body is waited for that a handler doesn't read.
func BoundUnread(next http.Handler) http.Handler { return transport.BoundUnread(next) }

// refuse answers a request that doesn't reach GraphQL in GraphQL's own form.
func refuse(w http.ResponseWriter, status int, err *runtime.Error) {
	refuseWith(w, status, &gqlerror.Error{Message: err.Message, Extensions: extensions(err)})
}

func refuseWith(w http.ResponseWriter, status int, err *gqlerror.Error) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(response.Append(nil, &graphql.Response{Errors: gqlerror.List{err}})) // a client that left needs no answer
}
