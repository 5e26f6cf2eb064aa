// Package poseidon is the API for CodeOcean. It serves the API of openHPI's Poseidon below
// /api/v1, and guarantees that CodeOcean works with it unchanged.
//
// A Rockpool environment whose id is a number is an execution environment of CodeOcean. Other
// environments are invisible to CodeOcean. The header Poseidon-Token has a Rockpool token.
package poseidon

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/compat"
	"github.com/rockpool/rockpool/runtime"
)

// TokenHeader is the header with the caller's token.
const TokenHeader = "Poseidon-Token"

// root is the path of the API's routes.
const root = "/api/v1"

// Options say how the server's cluster differs from the one that CodeOcean expects.
type Options struct {
	Isolation   runtime.Isolation // of environments that CodeOcean creates; empty for the default
	LeastCPUMHz int               // minimum CPU of environments that CodeOcean puts: its numbers are shares, and can be limits here
}

// New returns the API.
func New(options Options) compat.API {
	return &api{options: options, keepalive: keepalive, closeTime: closeTime, quitGrace: quitGrace, inputStall: inputStall, pending: &pendingExecutions{of: map[runtime.RunnerID][]pendingExecution{}}}
}

// An api implements compat.API. Its times are fields, so that tests can change them.
type api struct {
	compat.Services
	options    Options
	keepalive  time.Duration
	closeTime  time.Duration
	quitGrace  time.Duration
	inputStall time.Duration
	pending    *pendingExecutions
}

func (*api) Name() string { return "poseidon" }

func (*api) Path() string { return root + "/" }

func (*api) Headers() []string { return []string{TokenHeader} }

func (a *api) Register(services compat.Services, routes *compat.Routes) {
	a.Services, a.pending.memory = services, services.Memory
	shown := func(r *http.Request) string { return r.Header.Get(TokenHeader) }
	// by answers an unknown caller with a status.
	by := func(status int) compat.Authentication {
		return compat.Authentication{Shown: shown, Refuse: func(w http.ResponseWriter, r *http.Request, err error) {
			if runtime.CodeOf(err) == runtime.CodeQuotaExceeded {
				a.refuse(w, r, err)
				return
			}
			w.WriteHeader(status)
		}}
	}
	// Health checks have no token: they learn that the server is ready.
	routes.Handle("GET "+root+"/health", services.Authenticated(by(http.StatusNoContent), http.HandlerFunc(a.health)))
	routes.Handle("GET "+root+"/version", http.HandlerFunc(a.version))
	for pattern, handle := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /statistics/execution-environments": a.statistics,
		"GET /execution-environments":            a.environments,
		"GET /execution-environments/{id}":       a.environment,
		"PUT /execution-environments/{id}":       a.putEnvironment,
		"DELETE /execution-environments/{id}":    a.deleteEnvironment,
		"POST /runners":                          a.claim,
		"DELETE /runners/{runner}":               a.release,
		"GET /runners/{runner}/files":            a.files,
		"PATCH /runners/{runner}/files":          a.updateFiles,
		"GET /runners/{runner}/files/raw":        a.download,
		"POST /runners/{runner}/execute":         a.execute,
		"GET /runners/{runner}/websocket":        a.follow,
	} {
		method, path, _ := strings.Cut(pattern, " ")
		routes.Handle(method+" "+root+path, services.Authenticated(by(http.StatusUnauthorized), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := handle(w, r); err != nil {
				a.refuse(w, r, err)
			}
		})))
	}
}

// health reports the caller's pools with too few idle runners. A caller without a token only learns
// that the server is ready, since pools belong to tenants.
func (a *api) health(w http.ResponseWriter, r *http.Request) {
	alerts, err := a.Engine.Environments.Alerts(r.Context())
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	var depleted []string
	for _, alert := range alerts {
		if _, ok := number(alert.EnvironmentID); ok {
			depleted = append(depleted, string(alert.EnvironmentID))
		}
	}
	if len(depleted) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	answer(w, http.StatusServiceUnavailable, serverError{"the prewarming pool is depleting: environments " + strings.Join(depleted, ","), "PREWARMING_POOL_DEPLETING"})
}

func (a *api) version(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, a.Version) }

// The codes of a serverError.
const (
	overload    = "NOMAD_OVERLOAD"
	unreachable = "NOMAD_UNREACHABLE"
	unknown     = "UNKNOWN"
)

// A clientError is the body of an answer with a status below 500.
type clientError struct {
	Message string `json:"message"`
}

// A serverError is the body of an answer with a status of 500 or more.
type serverError struct {
	Message   string `json:"message"`
	ErrorCode string `json:"errorCode"`
}

// A status is an error with an HTTP status.
type status struct {
	code    int
	message string
}

func (s status) Error() string { return s.message }

// refuse answers with an error.
func (a *api) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil { // the connection was closed, the token ended, or the server stops
		answer(w, http.StatusServiceUnavailable, serverError{"the request was cancelled", unknown})
		return
	}
	if chosen, ok := errors.AsType[status](err); ok {
		answer(w, chosen.code, clientError{chosen.message})
		return
	}
	switch runtime.CodeOf(err) {
	case runtime.CodeInvalidInput:
		answer(w, http.StatusBadRequest, clientError{message(err)})
	case runtime.CodeUnauthenticated:
		w.WriteHeader(http.StatusUnauthorized)
	case runtime.CodeForbidden:
		answer(w, http.StatusForbidden, clientError{message(err)})
	case runtime.CodeEnvironmentNotFound, runtime.CodeExecutionNotFound:
		answer(w, http.StatusNotFound, clientError{message(err)})
	case runtime.CodeConflict:
		answer(w, http.StatusConflict, clientError{message(err)})
	case runtime.CodeRunnerGone:
		answer(w, http.StatusGone, clientError{message(err)})
	case runtime.CodeFileError:
		answer(w, http.StatusFailedDependency, clientError{message(err)})
	case runtime.CodeNoRunnerAvailable, runtime.CodeQuotaExceeded:
		answer(w, http.StatusInternalServerError, serverError{message(err), overload})
	case runtime.CodeClusterUnavailable:
		answer(w, http.StatusInternalServerError, serverError{message(err), unreachable})
	case runtime.CodeStorageFull, runtime.CodeLimitExceeded:
		answer(w, http.StatusInternalServerError, serverError{message(err), unknown})
	default:
		a.Logger.Error("a request of the API poseidon failed", zap.String("route", r.Pattern), zap.Error(err))
		answer(w, http.StatusInternalServerError, serverError{"internal error", unknown})
	}
}

// fields replaces Rockpool's names of fields by CodeOcean's.
var fields = strings.NewReplacer("poolSize", "prewarmingPoolSize", "resources.cpuMHz", "cpuLimit", "resources.memoryMiB", "memoryLimit",
	"network.exposedPorts", "exposedPorts", "network.access", "networkAccess", "variables", "environment", "shell", "command")

// message returns the message of an error for callers.
func message(err error) string {
	var e *runtime.Error
	if !errors.As(err, &e) {
		return "internal error"
	}
	if e.Field == "" {
		return e.Message
	}
	return fields.Replace(e.Field) + ": " + e.Message
}

// read decodes a request's body. Handlers call it first, since some clients fail if they get an
// answer before they have sent the body. It doesn't read a body whose announced length is too long.
func (a *api) read(w http.ResponseWriter, r *http.Request, into any) error {
	body, err := a.ReadBody(w, r)
	if refused, ok := errors.AsType[*compat.BodyError](err); ok {
		return status{refused.Status, refused.Message}
	}
	if err == nil {
		err = compat.ReservationOf(r).Expand(body)
	}
	switch runtime.CodeOf(err) {
	case runtime.CodeInvalidInput:
		return status{http.StatusBadRequest, message(err)}
	case runtime.CodeLimitExceeded: // like a body that is too long: after a 400 CodeOcean would destroy the runner
		return status{http.StatusRequestEntityTooLarge, runtime.MessageOf(err)}
	}
	if err != nil {
		return err
	}
	err = compat.ReservationOf(r).Turn(r.Context(), len(body), func() error { return json.Unmarshal(body, into) })
	if runtime.CodeOf(err) == runtime.CodeClusterUnavailable { // no turn
		return err
	}
	if err != nil {
		return status{http.StatusBadRequest, "the body isn't valid JSON for this request: " + whyNot(err)}
	}
	return nil
}

// whyNot describes an error in JSON. It doesn't use the decoder's text, which repeats the client's
// input in full length.
func whyNot(err error) string {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err.Error() // contains a position, and at most one character
	}
	return fmt.Sprintf("%s can't be a JSON %.40s", cmp.Or(wrong.Field, "the body"), wrong.Value) // "number 1e999"
}

// answer writes a status and a body in JSON.
func answer(w http.ResponseWriter, code int, body any) {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = encoder(w).Encode(body) // fails only if the client closed the connection
}

// encoder returns an encoder that replaces invalid UTF-8 with U+FFFD, and escapes nothing else.
func encoder(w io.Writer) *json.Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e
}
