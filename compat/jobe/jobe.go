// Package jobe is Jobe's API, for clients such as Moodle's plugin CodeRunner. It serves Jobe's
// four routes below /jobe/index.php/restapi. It guarantees that each run has a fresh runner, which
// is released when the run ends.
//
// Clients send their token in the header X-API-KEY. Files that clients upload are kept in memory,
// separately for each tenant.
package jobe

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/compat"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/fairqueue"
	"github.com/rockpool/rockpool/runtime/language"
)

// root is the path of Jobe's routes.
const root = "/jobe/index.php/restapi/"

// New returns the API.
func New() compat.API { return new(api) }

func (*api) Name() string { return "jobe" }

func (*api) Path() string { return root }

func (*api) Headers() []string { return []string{"X-API-KEY", "X-CodeRunner-Job-Id"} }

func (a *api) Register(services compat.Services, routes *compat.Routes) {
	a.Services, a.files = services, newCache(services.Memory.Reserve(maxCachedBytes))
	a.defaults, a.turns = language.Default(), fairqueue.NewSharedLimiter(2*programsPerCPU)
	shown := compat.Authentication{Shown: func(r *http.Request) string { return r.Header.Get("X-API-KEY") }, Refuse: a.refuseCaller}
	for pattern, handler := range map[string]handler{
		"GET " + root + "languages": a.languages, "GET " + root + "languages/{$}": a.languages,
		"HEAD " + root + "files/{id}": a.headFile, "PUT " + root + "files/{id}": a.putFile,
		"POST " + root + "runs": a.run, "POST " + root + "runs/{$}": a.run,
	} {
		routes.Handle(pattern, services.Authenticated(shown, a.answering(handler)))
	}
}

// refuseCaller answers a request without a valid token, or of a caller that has reached its limit
// of requests.
func (a *api) refuseCaller(w http.ResponseWriter, r *http.Request, err error) {
	if runtime.CodeOf(err) == runtime.CodeQuotaExceeded {
		a.answering(func(http.ResponseWriter, *http.Request) (any, error) {
			if r.Method == http.MethodPost { // a run
				return overloaded(err)
			}
			return nil, err
		}).ServeHTTP(w, r)
		return
	}
	text := "Unknown API key"
	if r.Header.Get("X-API-KEY") == "" {
		text = "Missing API key"
	}
	write(w, http.StatusForbidden, text)
}

// api has what the routes share. Its methods are safe for concurrent use.
type api struct {
	compat.Services
	files    *cache
	defaults *language.Set      // the built-in recipes, without an operator's changes
	turns    *fairqueue.Limiter // of programs
}

// A handler returns the answer to a request. It may set deadlines with w, and must not write to it.
type handler func(w http.ResponseWriter, r *http.Request) (any, error)

// answering returns an http.Handler that writes a handler's result. A nil result has no content; a
// *refusal has its own status.
func (a *api) answering(handle handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := handle(w, r)
		switch {
		case err != nil:
			status, why := a.explain(r, err)
			write(w, status, why)
		case answer == sent{}:
		case answer == nil:
			w.WriteHeader(http.StatusNoContent)
		default:
			write(w, http.StatusOK, answer)
		}
	})
}

// explain returns the status and the reason of an error for the client. It logs an internal error,
// unless the client closed the connection or the server stops.
func (a *api) explain(r *http.Request, err error) (status int, why string) {
	if refused, ok := errors.AsType[*refusal](err); ok {
		return refused.status, refused.why
	}
	if body, ok := errors.AsType[*compat.BodyError](err); ok {
		return body.Status, body.Message
	}
	switch code := runtime.CodeOf(err); {
	case code == runtime.CodeForbidden || code == runtime.CodeUnauthenticated:
		return http.StatusForbidden, runtime.MessageOf(err)
	case r.Context().Err() != nil:
		return http.StatusServiceUnavailable, "the request was given up"
	case code == runtime.CodeInternal:
		a.Logger.Error("a request of Jobe's failed", zap.Error(err))
		return http.StatusInternalServerError, "Server exception: the server's log has the detail"
	}
	return http.StatusServiceUnavailable, runtime.MessageOf(err)
}

// A sent is the result of a handler that has written its answer.
type sent struct{}

// jsonType is the type of all answers.
const jsonType = "application/json; charset=UTF-8"

func write(w http.ResponseWriter, status int, answer any) {
	text := encode(answer)
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(status)
	_, _ = w.Write(text) // fails only if the client closed the connection
}

// encodedJSON is an answer in JSON.
type encodedJSON []byte

// encode returns an answer as JSON, without HTML escapes. One that is already encoded is unchanged.
func encode(answer any) encodedJSON {
	if text, is := answer.(encodedJSON); is {
		return text
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(answer); err != nil {
		panic(err) // impossible for strings and numbers
	}
	return text.Bytes()
}

// caller returns the caller if it may run programs.
func (a *api) caller(ctx context.Context) (access.Principal, error) {
	return a.Engine.Callers.Allowed(ctx, "run")
}

// headFile serves HEAD of a file: 204 if the caller's tenant has uploaded it, else 404.
func (a *api) headFile(_ http.ResponseWriter, r *http.Request) (any, error) {
	p, err := a.caller(r.Context())
	if err != nil {
		return nil, err
	}
	if _, there := a.files.get(p.Tenant, r.PathValue("id")); !there {
		return nil, refuse(http.StatusNotFound, "the file doesn't exist")
	}
	return nil, nil
}

// putFile serves PUT of a file. It replaces a file of the same tenant with the same id.
func (a *api) putFile(w http.ResponseWriter, r *http.Request) (any, error) {
	p, err := a.caller(r.Context())
	if err != nil {
		return nil, err
	}
	id := r.PathValue("id")
	if !fileIDs.MatchString(id) {
		return nil, refuse(http.StatusNotFound, "a file's id must consist of at most 128 letters and digits")
	}
	body, err := a.ReadBody(w, r)
	if err != nil {
		return nil, err
	}
	var content []byte
	ctx := context.WithoutCancel(r.Context()) // clients may close the connection after the upload
	err = compat.ReservationOf(r).Turn(ctx, len(body), func() (err error) {
		content, err = fileContents(id, body)
		return err
	})
	if err != nil {
		return nil, err
	}
	if !a.files.put(p.Tenant, id, content) {
		return nil, refuse(http.StatusRequestEntityTooLarge, "put: file %s is larger than the cache of %d MiB, a quarter of the memory that the server keeps for callers", id, a.files.most>>20)
	}
	return nil, nil
}

// fileContents returns the contents in the body of a PUT.
func fileContents(id string, body []byte) ([]byte, error) {
	var put struct {
		Contents json.RawMessage `json:"file_contents"`
	}
	if json.Unmarshal(body, &put) != nil {
		return nil, bad("put: missing file_contents parameter")
	}
	text, given, ok := scalar(put.Contents)
	if !given || !ok {
		return nil, bad("put: missing file_contents parameter")
	}
	content, err := decode(text)
	if err != nil {
		return nil, bad("put: contents of file %s are not valid base-64", id)
	}
	return content, nil
}

// decode decodes base64 as PHP does: white space is allowed, and padding may be missing.
func decode(text string) ([]byte, error) {
	text = strings.NewReplacer(" ", "", "\t", "", "\r", "", "\n", "").Replace(text)
	if strings.HasSuffix(text, "=") {
		return base64.StdEncoding.DecodeString(text)
	}
	return base64.RawStdEncoding.DecodeString(text)
}
