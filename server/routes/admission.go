package routes

import (
	"context"
	"net/http"
	"net/netip"
	"strings"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/identity"
)

// An Admission authenticates requests. It puts the principal into the context of each request. That
// context ends when the caller's token or grant does.
type Admission struct {
	Registry *identity.Registry
	// Session returns the session in a request's cookie, if no page of another site can have sent
	// it. If it is nil, there are no sessions.
	Session func(r *http.Request) (secret string, ok bool)
	// Failed is called for each unknown credential. If it is nil, nothing is called.
	Failed func(address netip.Addr, err error)
}

// failed reports an unknown credential to Failed.
func (a *Admission) failed(ctx context.Context, err error) {
	if a.Failed != nil {
		a.Failed(clients.ClientAddress(ctx), err)
	}
}

// grantParameter is the parameter of an address that may contain a grant, for clients that can't
// send a header: links, images and EventSource.
const grantParameter = "grant"

// credential returns a request's credential: a token or a grant in the header Authorization, a grant in
// the address, or a session's cookie. It is "" if it has none.
func (a *Admission) credential(r *http.Request) (string, error) {
	if text, err := explicitCredential(r); text != "" || err != nil {
		return text, err
	}
	return a.session(r), nil
}

// explicitCredential returns the credential that a client sent explicitly. A cookie isn't, because browsers
// send it automatically.
func explicitCredential(r *http.Request) (string, error) {
	if header := r.Header.Get("Authorization"); header != "" {
		return bearer(header)
	}
	if grant := r.URL.Query().Get(grantParameter); grant != "" {
		if !identity.IsGrant(grant) {
			return "", runtime.Errorf(runtime.CodeUnauthenticated, "the parameter grant accepts only a grant: send a token in the header Authorization")
		}
		return grant, nil
	}
	return "", nil
}

// session returns the session in a request's cookie, or "".
func (a *Admission) session(r *http.Request) string {
	if a.Session != nil {
		if secret, ok := a.Session(r); ok {
			return secret
		}
	}
	return ""
}

// bearer returns the credential of a header with the scheme Bearer.
func bearer(header string) (string, error) {
	scheme, shown, _ := strings.Cut(header, " ")
	if shown = strings.TrimSpace(shown); !strings.EqualFold(scheme, "Bearer") || shown == "" {
		return "", runtime.Errorf(runtime.CodeUnauthenticated, `the header must be "Authorization: Bearer TOKEN"`)
	}
	return shown, nil
}

// Authenticate returns the caller of a request. It returns an error if its credential is missing or
// unknown.
func (a *Admission) Authenticate(r *http.Request) (identity.Caller, error) {
	shown, err := a.credential(r)
	if err != nil && !a.Registry.Open() {
		return identity.Caller{}, err
	}
	return a.Known(r, shown)
}

// Known returns the caller with this credential ("" means none) of a request.
func (a *Admission) Known(r *http.Request, shown string) (identity.Caller, error) {
	caller, err := a.Registry.Authenticate(shown)
	if err != nil && shown != "" {
		a.failed(r.Context(), err)
	}
	return caller.At(clients.ClientAddress(r.Context())), err
}

// Shown returns the caller of a request with a credential; shown is false if it has none.
func (a *Admission) Shown(r *http.Request) (caller identity.Caller, shown bool, err error) {
	text, err := a.credential(r)
	if err != nil || text == "" {
		return caller, false, err
	}
	caller, err = a.Known(r, text)
	return caller, true, err
}

// ByID returns the caller of a token's id. It returns an error if the token has ended.
func (a *Admission) ByID(id string) (identity.Caller, error) { return a.Registry.ByID(id) }

// An upgradeKey is the key of an upgrade in a request's context.
type upgradeKey struct{}

// Admit authenticates a WebSocket. A browser can't open one with the header Authorization, so the
// payload of connection_init may have a field of that name. It has precedence over a cookie: a page
// that sends a grant has only the grant's rights.
//
// It returns the context in which the WebSocket acts. That context ends when the caller's token or
// grant does. refusal is the reason if the WebSocket isn't served. ctx must be that of a request
// that passed GuardOperations.
func (a *Admission) Admit(ctx context.Context, payload map[string]any) (_ context.Context, refusal string) {
	shown, _ := ctx.Value(upgradeKey{}).(upgrade)
	if shown.text == "" && shown.err == nil {
		for name, value := range payload {
			if given, isText := value.(string); isText && strings.EqualFold(name, "authorization") {
				shown.text, shown.err = bearer(given)
			}
		}
	}
	if shown.err != nil && !a.Registry.Open() {
		return nil, shown.err.Error()
	}
	if shown.text == "" {
		shown.text = shown.session
	}
	caller, err := a.Registry.Authenticate(shown.text)
	if err != nil {
		a.failed(ctx, err)
		return nil, err.Error()
	}
	bound, release := caller.At(clients.ClientAddress(ctx)).Bind(ctx)
	context.AfterFunc(ctx, release)
	return bound, ""
}

// An upgrade is the credential in the request for a WebSocket.
type upgrade struct {
	text    string // explicit
	err     error
	session string // from its cookie
}

// Guard serves authenticated callers with next.
func (a *Admission) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, err := a.Authenticate(r)
		if err != nil {
			refuse(w, err)
			return
		}
		ctx, release := caller.Bind(r.Context())
		defer release()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// For serves callers that may use an operation with next.
func (a *Admission) For(op access.Operation, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := access.FromContext(r.Context()).Allow(op); err != nil {
			transport.RefuseTyped(w, http.StatusForbidden, runtime.Errorf(runtime.CodeForbidden, "%s", err.Error()))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// refuse responds to an unauthenticated request.
func refuse(w http.ResponseWriter, err error) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="rockpool"`)
	transport.RefuseTyped(w, http.StatusUnauthorized, runtime.Errorf(runtime.CodeUnauthenticated, "%s", err.Error()))
}

// GuardOperations guards the API. It accepts a WebSocket without a credential, since that may
// follow after it is open: see Admit.
func (a *Admission) GuardOperations(next http.Handler) http.Handler {
	guarded := a.Guard(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !transport.IsWebSocket(r) {
			guarded.ServeHTTP(w, r)
			return
		}
		var shown upgrade
		shown.text, shown.err = explicitCredential(r)
		shown.session = a.session(r)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), upgradeKey{}, shown)))
	})
}
