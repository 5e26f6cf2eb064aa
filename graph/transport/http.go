package transport

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/runtime"
)

// The media types of answers.
const (
	typeJSON     = "application/json"
	typeResponse = "application/graphql-response+json"
	typeEvents   = "text/event-stream"
)

// accepted returns the offered media type that a request prefers: the first if it has no
// preference, "" if it accepts none.
func accepted(r *http.Request, offered ...string) string {
	header := strings.Join(r.Header.Values("Accept"), ",")
	if strings.TrimSpace(header) == "" {
		return offered[0]
	}
	best, bestQuality := "", 0.0
	for part := range strings.SplitSeq(header, ",") {
		kind, params, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil {
			continue
		}
		quality := 1.0
		if q, err := strconv.ParseFloat(params["q"], 64); err == nil {
			quality = q
		}
		for _, offer := range offered {
			group, _, _ := strings.Cut(offer, "/")
			// Of equal qualities, the first in the header wins.
			if quality > bestQuality && (kind == offer || kind == "*/*" || kind == group+"/*") {
				best, bestQuality = offer, quality
				break
			}
		}
	}
	return best
}

// wantsEvents reports whether a request prefers server-sent events.
func wantsEvents(r *http.Request) bool {
	return strings.Contains(strings.Join(r.Header.Values("Accept"), ","), typeEvents) &&
		accepted(r, typeJSON, typeResponse, typeEvents) == typeEvents
}

// Serve serves a request by the transport that it asks for. A GET carries only queries, because a
// browser sends one for any page that has a link. A POST has its operation as JSON, or in several
// parts with files.
func (s Settings) Serve(w http.ResponseWriter, r *http.Request, exec graphql.GraphExecutor) {
	reads := r.Method == http.MethodGet
	switch {
	case IsWebSocket(r):
		s.serveWebSocket(w, r, exec)
		return
	case r.Header.Get("Upgrade") != "" || !reads && r.Method != http.MethodPost:
		WrongMethod(w)
		return
	case wantsEvents(r):
		s.serveEvents(w, r, exec)
		return
	case reads:
		s.serve(w, r, exec, func(h *reservation) (*graphql.RawParams, int, error) { return s.readParams(w, r, nil, h) })
		return
	}
	read, body := s.readParams, clients.NewBody(w, r, s.Silence)
	if isMultipart(r) {
		read = s.readMultipart
	}
	s.serve(afterwards{w, body}, r, exec, func(h *reservation) (*graphql.RawParams, int, error) { return read(w, r, body, h) })
}

// readBody reads a body of at most MaxBody bytes. With an error it returns the status.
func (s Settings) readBody(w http.ResponseWriter, body *clients.Body, h *reservation) ([]byte, int, error) {
	text, err := body.ReadAll(&h.Reservation, s.MaxBody)
	switch {
	case err == nil:
		return text, 0, nil
	case errors.Is(err, clients.ErrTooLong):
		return nil, http.StatusRequestEntityTooLarge, runtime.Errorf(runtime.CodeLimitExceeded, "the body must be at most %d bytes", s.MaxBody)
	case runtime.CodeOf(err) == runtime.CodeLimitExceeded:
		return nil, http.StatusRequestTimeout, err
	}
	return nil, statusOf(w, err, http.StatusServiceUnavailable, http.StatusBadRequest), err
}

// readParams reads an operation from a POST's body or a GET's address.
func (s Settings) readParams(w http.ResponseWriter, r *http.Request, body *clients.Body, h *reservation) (*graphql.RawParams, int, error) {
	if r.Method == http.MethodGet {
		params, err := addressParams(r, h)
		return params, statusOf(w, err, http.StatusServiceUnavailable, http.StatusBadRequest), err
	}
	if kind, args, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != typeJSON {
		// A plain HTML form can send other types to the server from any page.
		return nil, http.StatusUnsupportedMediaType, runtime.Errorf(runtime.CodeInvalidInput, "the Content-Type must be %s, or %s with files", typeJSON, typeMultipart)
	} else if charset := args["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return nil, http.StatusUnsupportedMediaType, runtime.Errorf(runtime.CodeInvalidInput, "the charset must be utf-8")
	}
	text, status, err := s.readBody(w, body, h)
	if err != nil {
		return nil, status, err
	}
	params, err := h.decodeParams(r.Context(), text)
	return params, statusOf(w, err, http.StatusServiceUnavailable, http.StatusBadRequest), err
}

// addressParams reads an operation from an address. Its length is part of the request head's limit.
func addressParams(r *http.Request, h *reservation) (*graphql.RawParams, error) {
	values := r.URL.Query()
	if !values.Has("query") {
		return nil, runtime.Errorf(runtime.CodeInvalidInput, "the address has no query: add ?query={…}, or send a POST")
	}
	params := &graphql.RawParams{Query: values.Get("query"), OperationName: values.Get("operationName")}
	if _, err := clients.Values([]byte(params.Query)); err != nil {
		return nil, err
	}
	variables, extensions := []byte(values.Get("variables")), []byte(values.Get("extensions"))
	if err := h.Expand(variables, extensions); err != nil {
		return nil, err
	}
	for _, part := range []struct {
		text []byte
		into *map[string]any
	}{{variables, &params.Variables}, {extensions, &params.Extensions}} {
		if len(part.text) > 0 {
			if err := unmarshal(part.text, part.into); err != nil {
				return nil, err
			}
		}
	}
	return params, h.parse(params.Query)
}

// refuse responds to a request without an operation.
func (s Settings) refuse(w http.ResponseWriter, r *http.Request, status int, err error) {
	kind := accepted(r, typeJSON, typeResponse)
	if kind == "" {
		kind = typeJSON
	}
	answer(w, kind, status, &graphql.Response{Errors: gqlerror.List{s.Present(r.Context(), err)}})
}

// answer writes a GraphQL response of a media type.
func answer(w http.ResponseWriter, kind string, status int, r *graphql.Response) {
	write(w, kind, status, Encode(r))
}

// write writes a whole response. Browsers must not guess its type, nor may anything cache it.
func write(w http.ResponseWriter, kind string, status int, body []byte) {
	header := w.Header()
	setHead(header, kind)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that left needs no answer
}

// setHead sets the header of an answer of a media type, except for its length.
func setHead(header http.Header, kind string) {
	header.Set("Content-Type", kind+"; charset=utf-8")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
}

// serve serves a query or mutation. An operation that can't begin gets status 400, or 200 if the
// client accepts only plain JSON: older clients take any other status for a broken server.
func (s Settings) serve(w http.ResponseWriter, r *http.Request, exec graphql.GraphExecutor, read func(h *reservation) (*graphql.RawParams, int, error)) {
	ctx := r.Context()
	kind := accepted(r, typeJSON, typeResponse)
	if kind == "" {
		s.refuse(w, r, http.StatusNotAcceptable, runtime.Errorf(runtime.CodeInvalidInput, "the header Accept must allow %s, %s, or for subscriptions %s", typeJSON, typeResponse, typeEvents))
		return
	}
	h := s.reserve(ctx)
	defer h.release()
	op, refused, ok := s.begin(w, r, exec, h, read)
	if !ok {
		return
	}
	failed := http.StatusOK
	if kind == typeResponse {
		failed = http.StatusBadRequest
	}
	if refused == nil && op.kind() == ast.Subscription {
		refused = &graphql.Response{Errors: gqlerror.List{s.Present(ctx, runtime.Errorf(runtime.CodeInvalidInput,
			"a subscription needs a WebSocket with the subprotocol %s, or a request that accepts %s", Subprotocol, typeEvents))}}
	}
	if refused != nil {
		h.release()
		answer(w, kind, failed, refused)
		return
	}
	if err := s.execute(h, op); err != nil {
		h.release()
		s.refuse(w, r, statusOf(w, err, http.StatusServiceUnavailable, 0), err)
		return
	}
	var answered *graphql.Response
	work := func() {
		next, ctx := exec.DispatchOperation(h.charging(ctx), op.context)
		answered = s.orFailure(ctx, next(ctx))
	}
	sent := false
	if isMultipart(r) { // its body is still being read
		work()
	} else {
		sent = clients.Early(w, s.Early, func(header http.Header) { setHead(header, kind) }, work)
	}
	setRetryAfter(w.Header(), answered.Errors)
	body, status := Encode(answered), http.StatusOK
	if err := h.answered(op.kind(), body); err != nil {
		h.release()
		status = statusOf(w, err, http.StatusServiceUnavailable, http.StatusOK)
		body = Encode(&graphql.Response{Errors: gqlerror.List{s.Present(ctx, err)}, Data: []byte("null")})
	}
	if sent {
		_, _ = w.Write(body) // a client that left needs no answer
		return
	}
	write(w, kind, status, body)
}

// begin counts, reads and prepares an operation. If it isn't ok, it has responded. If refused isn't
// nil, the client gets it instead of an operation.
func (s Settings) begin(w http.ResponseWriter, r *http.Request, exec graphql.GraphExecutor, h *reservation, read func(h *reservation) (*graphql.RawParams, int, error)) (op operation, refused *graphql.Response, ok bool) {
	if err := h.Operate(); err != nil {
		s.refuse(w, r, statusOf(w, err, http.StatusTooManyRequests, 0), err)
		return op, nil, false
	}
	params, status, err := read(h)
	if err != nil {
		h.release() // the rest of a refused body is read for a while
		s.refuse(w, r, status, err)
		return op, nil, false
	}
	op, refused = s.prepare(r.Context(), exec, params, r.Header)
	// GraphQL over HTTP requires status 405 for a mutation by GET.
	if refused == nil && op.kind() == ast.Mutation && r.Method == http.MethodGet {
		w.Header().Set("Allow", http.MethodPost)
		s.refuse(w, r, http.StatusMethodNotAllowed, runtime.Errorf(runtime.CodeInvalidInput, "a mutation needs a POST"))
		return op, nil, false
	}
	return op, refused, true
}

// RetryAfter is the extension of an error with the seconds until a retry makes sense, as in the
// header Retry-After.
const RetryAfter = "retryAfter"

// setRetryAfter sets the header Retry-After to the longest time of the errors.
func setRetryAfter(header http.Header, errs gqlerror.List) {
	longest := int64(0)
	for _, err := range errs {
		seconds, _ := err.Extensions[RetryAfter].(int64)
		longest = max(longest, seconds)
	}
	if longest > 0 {
		header.Set("Retry-After", strconv.FormatInt(longest, 10))
	}
}

// orFailure returns r, or an error if r is nil because the request was cancelled.
func (s Settings) orFailure(ctx context.Context, r *graphql.Response) *graphql.Response {
	if r != nil {
		return r
	}
	if why := callerEnded(ctx); why != nil {
		return &graphql.Response{Errors: gqlerror.List{s.Present(ctx, why)}}
	}
	return &graphql.Response{Errors: gqlerror.List{{
		Message:    "the request was cancelled, or the server is stopping",
		Extensions: map[string]any{"code": runtime.CodeClusterUnavailable, "retryable": ctx.Err() != nil},
	}}}
}

// decode decodes JSON. Numbers keep their text.
func decode(text []byte, into any) error {
	if _, err := clients.Values(text); err != nil {
		return err
	}
	return unmarshal(text, into)
}

// unmarshal decodes text that Values has checked.
func unmarshal(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		return malformed(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return runtime.Errorf(runtime.CodeInvalidInput, "the request has more than one JSON value")
	}
	return nil
}

// malformed returns INVALID_INPUT for text that couldn't be decoded.
func malformed(err error) error {
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return runtime.Errorf(runtime.CodeInvalidInput, "%s can't be a JSON %s", cmp.Or(kind.Field, "the request"), kind.Value)
	}
	return runtime.Errorf(runtime.CodeInvalidInput, "the request isn't JSON: %s", err)
}

// decodeParams decodes an operation from text that Values has checked.
func decodeParams(text []byte) (*graphql.RawParams, error) {
	var params struct {
		Query         *string        `json:"query"`
		OperationName string         `json:"operationName"`
		Variables     map[string]any `json:"variables"`
		Extensions    map[string]any `json:"extensions"`
	}
	if err := unmarshal(text, &params); err != nil {
		return nil, err
	}
	if params.Query == nil {
		return nil, runtime.Errorf(runtime.CodeInvalidInput, "the request has no query")
	}
	return &graphql.RawParams{Query: *params.Query, OperationName: params.OperationName, Variables: params.Variables, Extensions: params.Extensions}, nil
}
