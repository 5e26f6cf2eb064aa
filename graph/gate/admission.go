package gate

import (
	"context"
	"net/http"
	"net/netip"
	"strings"

	"github.com/rockpool/rockpool/graph/presenter"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/graph/transport/peers"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/identity"
)

// An Admission finds out who calls. It puts the principal into the context of each
// request, which ends when the caller's token or grant does.
type Admission struct {
	Book *identity.Book
	// Session returns the session of a request's cookie, if a page of another site can't
	// have sent it. Nil: there are no sessions.
	Session func(r *http.Request) (secret string, ok bool)
	// Failed learns of what callers show that isn't known. Nil: nothing does.
	Failed func(address netip.Addr, err error)
}

func (a *Admission) failed(ctx context.Context, err error) {
	if a.Failed != nil {
		a.Failed(peers.ClientAddress(ctx), err)
	}
}

// GrantParameter is the part of an address that may hold a grant, for what can't send a
// header: links, images and EventSource.
const GrantParameter = "grant"

// shown returns what a request shows: a token or a grant in the header Authorization, a
// grant in the address, or a session's cookie. "" is nothing.
func (a *Admission) shown(r *http.Request) (string, error) {
	if text, err := stated(r); text != "" || err != nil {
		return text, err
	}
	return a.session(r), nil
}

// stated returns what a request shows on purpose: a cookie comes by itself.
func stated(r *http.Request) (string, error) {
	if header := r.Header.Get("Authorization"); header != "" {
		return bearer(header)
	}
	if grant := r.URL.Query().Get(GrantParameter); grant != "" {
		if !identity.IsGrant(grant) {
			return "", runtime.Errorf(runtime.CodeUnauthenticated, "an address may have a grant and nothing else: send a token in the header Authorization")
		}
		return grant, nil
	}
	return "", nil
}

// session returns the session of a request's cookie; "" is none.
func (a *Admission) session(r *http.Request) string {
	if a.Session != nil {
		if secret, ok := a.Session(r); ok {
			return secret
		}
	}
	return ""
}

// bearer returns what stands after the scheme Bearer.
func bearer(header string) (string, error) {
	scheme, shown, _ := strings.Cut(header, " ")
	if shown = strings.TrimSpace(shown); !strings.EqualFold(scheme, "Bearer") || shown == "" {
		return "", runtime.Errorf(runtime.CodeUnauthenticated, `the header must be "Authorization: Bearer TOKEN"`)
	}
	return shown, nil
}

// Authenticate returns who sends a request.
func (a *Admission) Authenticate(r *http.Request) (identity.Caller, error) {
	shown, err := a.shown(r)
	if err != nil && !a.Book.Open() {
		return identity.Caller{}, err
	}
	return a.Known(r, shown)
}

// Known returns who shows a text with a request; "" is nothing.
func (a *Admission) Known(r *http.Request, shown string) (identity.Caller, error) {
	caller, err := a.Book.Authenticate(shown)
	if err != nil && shown != "" {
		a.failed(r.Context(), err)
	}
	return caller.At(peers.ClientAddress(r.Context())), err
}

// Shown returns who sends a request that shows something; false if it shows nothing.
func (a *Admission) Shown(r *http.Request) (caller identity.Caller, shown bool, err error) {
	text, err := a.shown(r)
	if err != nil || text == "" {
		return caller, false, err
	}
	caller, err = a.Known(r, text)
	return caller, true, err
}

// ByID returns the caller with a token's id, if that hasn't ended.
func (a *Admission) ByID(id string) (identity.Caller, error) { return a.Book.ByID(id) }

type upgradeKey struct{}

// Admit is for a WebSocket: a browser can't open one with a header of its own, so the
// payload of connection_init may have it under that name. It counts more than a cookie: a page
// that shows a grant has no more rights than the grant. It returns the context of what
// the WebSocket does, which ends when the caller's token or grant does, and why it isn't
// served; "": it is. ctx must be that of a request that GuardOperations let in.
func (a *Admission) Admit(ctx context.Context, payload map[string]any) (_ context.Context, refusal string) {
	shown, _ := ctx.Value(upgradeKey{}).(upgrade)
	if shown.text == "" && shown.err == nil {
		for name, value := range payload {
			if given, isText := value.(string); isText && strings.EqualFold(name, "authorization") {
				shown.text, shown.err = bearer(given)
			}
		}
	}
	if shown.err != nil && !a.Book.Open() {
		return nil, shown.err.Error()
	}
	if shown.text == "" {
		shown.text = shown.session
	}
	caller, err := a.Book.Authenticate(shown.text)
	if err != nil {
		a.failed(ctx, err)
		return nil, err.Error()
	}
	bound, release := caller.At(peers.ClientAddress(ctx)).Bind(ctx)
	context.AfterFunc(ctx, release)
	return bound, ""
}

// An upgrade is what the request for a WebSocket showed.
type upgrade struct {
	text    string // on purpose
	err     error
	session string // by its cookie
}

// Guard serves next to those who are known.
func (a *Admission) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, err := a.Authenticate(r)
		if err != nil {
			Refuse(w, err)
			return
		}
		ctx, release := caller.Bind(r.Context())
		defer release()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// For serves next to callers who may use an operation.
func (a *Admission) For(op access.Operation, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := access.FromContext(r.Context()).Allow(op); err != nil {
			presenter.RefuseTyped(w, http.StatusForbidden, runtime.Errorf(runtime.CodeForbidden, "%s", err.Error()))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Refuse answers an unauthenticated request.
func Refuse(w http.ResponseWriter, err error) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="rockpool"`)
	presenter.RefuseTyped(w, http.StatusUnauthorized, runtime.Errorf(runtime.CodeUnauthenticated, "%s", err.Error()))
}

// GuardOperations guards the API. It lets a WebSocket in, which may say who it is once it is
// open: see Admit.
func (a *Admission) GuardOperations(next http.Handler) http.Handler {
	guarded := a.Guard(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !(transport.WebSocket{}).Supports(r) {
			guarded.ServeHTTP(w, r)
			return
		}
		var shown upgrade
		shown.text, shown.err = stated(r)
		shown.session = a.session(r)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), upgradeKey{}, shown)))
	})
}
