// Package doors lets clients of other systems use Rockpool. A door speaks another system's API, maps its authentication
// to a token of ours, and calls the engine as its guard. A door keeps no state that belongs to the engine.
//
// Each door is a package below this one. A server opens those that the setting doors names.
package doors

import (
	"context"
	"fmt"
	"net/http"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/graph/transport/arriving"
	"github.com/rockpool/rockpool/graph/transport/peers"
	"github.com/rockpool/rockpool/runtime/guard"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/runtime/language"
	"github.com/rockpool/rockpool/runtime/versions"
)

// A Door is another system's API.
type Door interface {
	// Name returns its name, as the setting doors, the metrics and the audit log have it.
	Name() string
	// Path is a pattern of http.ServeMux that matches all its routes, for example "/api/v1/".
	Path() string
	// Register adds the door's routes. What the handlers do ends with their requests' contexts.
	Register(host Host, routes *Routes)
}

// Closed serves the paths of a door that the server doesn't open: it answers how that changes.
func Closed(door Door) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, fmt.Sprintf("This server doesn't open the door %s: its operator adds %[1]s to --doors (or ROCKPOOL_DOORS), and starts it again.", door.Name()), http.StatusNotFound)
	})
}

// A Host is what a door needs of the server.
type Host struct {
	Guard     *guard.Guard
	Languages *language.Set
	Versions  *versions.Book // of the languages in each environment
	Version   string
	MaxBody   int64        // bytes of a request
	Peers     *peers.Peers // the bounds of what callers take; nil: none
	Logger    *zap.Logger

	callers Callers
	door    string
}

// Callers authenticate tokens. gate.Admission does.
type Callers interface {
	// Known returns who shows a text with a request; "" is nothing.
	Known(r *http.Request, text string) (identity.Caller, error)
}

// An Authentication is how a system's clients show who they are.
type Authentication struct {
	Shown func(r *http.Request) string // the token of ours that a request shows; "": none
	// Refuse answers a request of an unknown caller, or, with QUOTA_EXCEEDED, of one who has as many as it may.
	Refuse func(w http.ResponseWriter, r *http.Request, err error)
}

// Authenticated serves next to callers who are known. Each request is an operation of its caller, except a DELETE:
// it takes nothing, and makes room. The context of next's request has the caller, and ends when the caller's token does.
func (h Host) Authenticated(by Authentication, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, err := h.callers.Known(r, by.Shown(r))
		if err != nil {
			by.Refuse(w, r, err)
			return
		}
		caller.Door = h.door
		ctx, release := caller.Bind(context.WithValue(r.Context(), callerKey{}, caller))
		defer release()
		ctx, hold := h.holding(ctx)
		defer hold.Release()
		if r.Method != http.MethodDelete {
			if err := hold.Operate(); err != nil {
				arriving.New(w, r, arriving.DefaultSilence).Drain()
				by.Refuse(w, r, err)
				return
			}
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

type callerKey struct{}

// Outlasting returns a context with the caller of an authenticated request that outlasts the request. It ends when the
// caller's token does, and when the server stops. Call release once it isn't used any more: a server that stops waits for it.
func Outlasting(ctx context.Context) (_ context.Context, release func()) {
	caller, _ := ctx.Value(callerKey{}).(identity.Caller)
	lasting, unbind := caller.Bind(context.WithoutCancel(ctx))
	life, _ := ctx.Value(lifeKey{}).(Life)
	if life.Ends == nil {
		return lasting, unbind
	}
	lasting, end := context.WithCancelCause(lasting)
	leave := life.Enter()
	stop := context.AfterFunc(life.Ends, func() { end(context.Cause(life.Ends)) })
	return lasting, func() { stop(); end(nil); unbind(); leave() }
}

// A Life is a server's. What outlasts its request ends with it.
type Life struct {
	Ends  context.Context       // when the server is to stop
	Enter func() (leave func()) // counts what the server waits for before its engine ends
}

type lifeKey struct{}

// In returns the context of a request to a server with this life.
func (l Life) In(ctx context.Context) context.Context { return context.WithValue(ctx, lifeKey{}, l) }

// Encrypted reports whether a request came by TLS: to this server, or to a trusted proxy in front of it.
func Encrypted(r *http.Request) bool { return peers.Encrypted(r) }

// Open adds the routes of doors to mux. Each counts in counts.
func Open(mux *http.ServeMux, host Host, callers Callers, counts *Counts, open ...Door) {
	host.callers = callers
	for _, door := range open {
		host.door = door.Name()
		door.Register(host, &Routes{mux: mux, counts: counts, door: door.Name()})
	}
}
