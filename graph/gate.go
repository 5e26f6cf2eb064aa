package graph

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2/gqlerror"

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
// on every transport. Programs send no Origin.
func checkOrigin(allowed []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		if origin != "" && !sameOrigin(origin, r.Host) && !allowedOrigin(allowed, origin) {
			refuse(w, http.StatusForbidden, runtime.Errorf(runtime.CodeForbidden,
				"requests from pages of %q aren't allowed; origins are added with --allowed-origins", origin))
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

// jsonOnly refuses bodies that a plain HTML form can send: those reach the
// server from any page, without a preflight.
func jsonOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
			refuse(w, http.StatusUnsupportedMediaType, runtime.Errorf(runtime.CodeInvalidInput,
				"the Content-Type must be application/json"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// limitBody refuses bodies of more than limit bytes before they are read, or,
// where no length was told, while they are.
func limitBody(limit int64, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength < 0 {
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
			var tooLarge *http.MaxBytesError
			switch {
			case errors.As(err, &tooLarge):
				r.ContentLength = limit + 1
			case err != nil:
				refuse(w, http.StatusBadRequest, runtime.Errorf(runtime.CodeInvalidInput, "the body broke off"))
				return
			default:
				r.Body = io.NopCloser(bytes.NewReader(body))
			}
		}
		if r.ContentLength > limit {
			w.Header().Set("Connection", "close") // what follows would have to be read
			refuse(w, http.StatusRequestEntityTooLarge, runtime.Errorf(runtime.CodeLimitExceeded,
				"the body must be at most %d bytes", limit))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// webSocketOnly lets through what wants to become a WebSocket that speaks our
// one subprotocol.
func webSocketOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
			w.Header().Set("Allow", http.MethodPost)
			refuse(w, http.StatusMethodNotAllowed, runtime.Errorf(runtime.CodeInvalidInput,
				"ask by POST, or over a WebSocket with the subprotocol %s", subprotocol))
		case !hasToken(r.Header.Values("Sec-WebSocket-Protocol"), subprotocol):
			refuse(w, http.StatusBadRequest, runtime.Errorf(runtime.CodeInvalidInput,
				"the WebSocket must ask for the subprotocol %s", subprotocol))
		default:
			// The transport would take the legacy protocol where it is named first.
			r.Header.Set("Sec-WebSocket-Protocol", subprotocol)
			next.ServeHTTP(w, r)
		}
	})
}

func hasToken(values []string, want string) bool {
	for _, value := range values {
		for token := range strings.SplitSeq(value, ",") {
			if strings.TrimSpace(token) == want {
				return true
			}
		}
	}
	return false
}

// refuse answers a request that doesn't reach GraphQL in GraphQL's own form.
func refuse(w http.ResponseWriter, status int, err *runtime.Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	answer := map[string]any{"errors": []*gqlerror.Error{{Message: err.Message, Extensions: extensions(err)}}}
	_ = json.NewEncoder(w).Encode(answer) // a client that left needs no answer
}
