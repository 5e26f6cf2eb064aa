// Package compat lets clients of other systems use Rockpool. A compatible API implements another
// system's API, maps its authentication to a Rockpool token, and calls the engine's services.
// It guarantees that its callers can do no more than their tokens allow.
//
// A compatible API has no state that belongs to the engine. Each one is a package below this one. A
// server serves those that the setting compat names.
package compat

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/runtime/language"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/versions"
)

// An API is the API of another system.
type API interface {
	// Name returns the API's name in the setting compat, in metrics and in the audit log.
	Name() string
	// Path returns a pattern of http.ServeMux that matches all its routes, for example "/api/v1/".
	Path() string
	// Headers returns the names of headers that its clients send. Pages of allowed origins may send
	// them, too.
	Headers() []string
	// Register adds the API's routes. It is called once. All work of a handler must end with its
	// request's context.
	Register(services Services, routes *Routes)
}

// Disabled returns a handler for the paths of an API that isn't served. Its answer says how to enable it.
func Disabled(api API) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, fmt.Sprintf("This server doesn't serve the API %s: add %[1]s to --compat (or ROCKPOOL_COMPAT), and restart the server.", api.Name()), http.StatusNotFound)
	})
}

// Services are what the server provides for a compatible API.
type Services struct {
	Engine    *engine.Services
	Languages *language.Set
	Versions  *versions.Cache // of the languages in each environment
	Version   string
	MaxBody   int64            // maximum size of a request's body, in bytes
	Peers     *clients.Limiter // limits of callers; nil sets none
	Memory    *quota.Memory    // for what an API keeps for its callers; nil has no limit
	Early     time.Duration    // see clients.Early
	Logger    *zap.Logger

	// Capacity returns how many CPUs the cluster has, and the speed of one core.
	Capacity func(ctx context.Context) (cpus, coreMHz int, err error)

	callers Callers
	api     string
}

// Callers authenticates tokens, as routes.Admission does.
type Callers interface {
	// Known returns the caller for a token in a request. An empty text is no token.
	Known(r *http.Request, text string) (identity.Caller, error)
}

// An Authentication says how a system's clients present their tokens.
type Authentication struct {
	Shown func(r *http.Request) string // returns the token in a request; empty if it has none
	// Refuse answers a request of an unknown caller. With QUOTA_EXCEEDED the caller is known and
	// has reached its limit of requests.
	Refuse func(w http.ResponseWriter, r *http.Request, err error)
}

// Authenticated returns a handler that calls next only for known callers. Each request counts as an
// operation of its caller, except a DELETE, which only frees resources. The context of next's
// request has the caller, and ends when the caller's token ends.
func (s Services) Authenticated(by Authentication, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, err := s.callers.Known(r, by.Shown(r))
		if err != nil {
			by.Refuse(w, r, err)
			return
		}
		caller.API = s.api
		ctx, release := caller.Bind(context.WithValue(r.Context(), callerKey{}, caller))
		defer release()
		ctx, reserved := s.reserve(ctx)
		defer reserved.Release()
		if r.Method != http.MethodDelete {
			if err := reserved.Operate(); err != nil {
				clients.NewBody(w, r, clients.DefaultSilence).Drain()
				by.Refuse(w, r, err)
				return
			}
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

type callerKey struct{}

// Outlasting returns a context with the caller of an authenticated request that doesn't end with
// the request. It ends when the caller's token ends or the server stops. The caller must call
// release when the work is done, because a server that stops waits for it.
func Outlasting(ctx context.Context) (_ context.Context, release func()) {
	caller, _ := ctx.Value(callerKey{}).(identity.Caller)
	lasting, unbind := caller.Bind(access.Alone(ctx))
	life := clients.LifeOf(ctx)
	if life.Ends == nil {
		return lasting, unbind
	}
	lasting, end := context.WithCancelCause(lasting)
	leave := life.Enter()
	stop := context.AfterFunc(life.Ends, func() { end(context.Cause(life.Ends)) })
	return lasting, func() { stop(); end(nil); unbind(); leave() }
}

// Mount adds the routes of APIs to mux. Their requests are counted in counts. It returns the methods
// of the routes, and the headers of the APIs' clients.
func Mount(mux *http.ServeMux, services Services, callers Callers, counts *Counts, apis ...API) (methods, headers []string) {
	services.callers = callers
	for _, api := range apis {
		services.api = api.Name()
		routes := &Routes{mux: mux, counts: counts, api: api.Name()}
		api.Register(services, routes)
		methods, headers = append(methods, routes.methods...), append(headers, api.Headers()...)
	}
	return methods, headers
}

// NamedVariable returns the name of the variable that an error of the engine is about, and that
// error. Other systems send variables as an object, so their index means nothing to a client. For
// other errors it returns nil.
func NamedVariable(err error, variables []runtime.Variable) (name string, refused *runtime.Error) {
	refused, is := errors.AsType[*runtime.Error](err)
	if !is {
		return "", nil
	}
	rest, is := strings.CutPrefix(refused.Field, "variables.")
	index, _, _ := strings.Cut(rest, ".")
	if i, err := strconv.Atoi(index); is && err == nil && i >= 0 && i < len(variables) {
		return variables[i].Name, refused
	}
	return "", nil
}

// A reservationKey is the key of a *clients.Reservation in a request's context.
type reservationKey struct{}

// reserve returns a context with a Reservation: the resources that the request takes of its caller's
// limits.
func (s Services) reserve(ctx context.Context) (context.Context, *clients.Reservation) {
	reserved := s.Peers.Reserve(ctx, clients.CredentialOf(access.FromContext(ctx)))
	return context.WithValue(ctx, reservationKey{}, &reserved), &reserved
}

// ReservationOf returns what an authenticated request has taken of its caller's limits: it counts as an
// operation. It is released when the handler returns.
func ReservationOf(r *http.Request) *clients.Reservation {
	if reserved, ok := r.Context().Value(reservationKey{}).(*clients.Reservation); ok {
		return reserved
	}
	return new(clients.Reservation)
}

// A BodyError is the status and the reason with which a body is refused.
type BodyError struct {
	Status  int
	Message string
}

func (e *BodyError) Error() string { return e.Message }

// ReadBody reads the body of an authenticated request with the API's limits. It takes memory
// from the request's reservation as bytes arrive. A body of which nothing arrives takes none. The error
// is QUOTA_EXCEEDED if there is none left, or a *BodyError. After an error no memory is held, and the
// handler must answer next.
//
// Before it returns an error it reads the rest of the body for a while, since some clients don't
// read an answer before they have sent everything. It doesn't if the announced length is too long,
// the body was late or broke off, or the client waits for permission to send it.
func (s Services) ReadBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, reserved := clients.NewBody(w, r, clients.DefaultSilence), ReservationOf(r)
	text, err := body.ReadAll(reserved, s.MaxBody)
	if err == nil {
		return text, nil
	}
	reserved.ReleaseMemory()
	body.Drain()
	switch code := runtime.CodeOf(err); {
	case errors.Is(err, clients.ErrTooLong):
		return nil, &BodyError{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body must be at most %d bytes", s.MaxBody)}
	case code == runtime.CodeQuotaExceeded:
		return nil, err
	case code == runtime.CodeLimitExceeded:
		return nil, &BodyError{http.StatusRequestTimeout, runtime.MessageOf(err)}
	default:
		return nil, &BodyError{http.StatusBadRequest, "the body broke off"}
	}
}
