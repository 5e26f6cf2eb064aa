package transport

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/99designs/gqlgen/graphql"
	"github.com/google/uuid"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// A Presenter converts every error to what a client may see: a message for people, and extensions
// with a stable code. It logs details that a client may not see, once, under an id that the client
// gets too. It is safe for concurrent use.
type Presenter struct {
	Logger *zap.Logger
	Hints  bool // messages may suggest names of the schema
}

// Refuse responds to a request that isn't GraphQL with an error in GraphQL's form.
func (p Presenter) Refuse(w http.ResponseWriter, r *http.Request, status int, err error) {
	Answer(w, status, p.Present(r.Context(), err))
}

// Present converts err. All errors of the API pass it. It doesn't change err.
func (p Presenter) Present(ctx context.Context, err error) *gqlerror.Error {
	if presented, ok := errors.AsType[*presentedError](err); ok {
		return presented.gql
	}
	out := &gqlerror.Error{Path: graphql.GetPath(ctx)}
	var gql *gqlerror.Error
	if errors.As(err, &gql) {
		out.Path, out.Locations = shortenPath(gql.Path), gql.Locations
	}
	typed := p.typed(ctx, err, gql)
	if message, _, suggests := strings.Cut(typed.Message, " Did you mean"); suggests && !p.Hints {
		plain := *typed
		plain.Message = message
		typed = &plain
	}
	out.Message, out.Extensions = shorten(typed.Message, maxMessage), extensions(typed)
	if gql != nil && gql.Extensions["cursor"] != nil {
		out.Extensions["cursor"] = gql.Extensions["cursor"]
	}
	if typed.Code == runtime.CodeInternal {
		id := uuid.NewString()
		out.Extensions["id"] = id
		out.Message = "the server failed; its log has the details under id " + id
		p.Logger.Error("request failed", zap.String("id", id), zap.Stringer("path", out.Path), zap.Error(typed))
	} else if typed.Code == runtime.CodeClusterUnavailable && typed.Err != nil {
		p.Logger.Warn("cluster unavailable", zap.Stringer("path", out.Path), zap.Error(typed))
	}
	// A transport presents some errors twice.
	out.Err = &presentedError{out}
	return out
}

// maxMessage is the longest message in bytes. A message may repeat what the client sent, which can
// be long.
const maxMessage = 500

// shorten cuts text after most bytes, at a whole character.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// shortenPath returns a copy of a path in which long names are cut.
func shortenPath(path ast.Path) ast.Path {
	out := slices.Clone(path)
	for i, part := range out {
		if name, ok := part.(ast.PathName); ok {
			out[i] = ast.PathName(shorten(string(name), maxMessage))
		}
	}
	return out
}

// typed returns err with its code. gql is the GraphQL error in its chain, or nil.
func (p Presenter) typed(ctx context.Context, err error, gql *gqlerror.Error) *runtime.Error {
	var typed *runtime.Error
	switch {
	case errors.As(err, &typed):
		if typed.Code == runtime.CodeInvalidInput && typed.Field == "" && gql != nil {
			named := *typed
			named.Field = fieldOf(ctx, gql.Path)
			return &named
		}
		return typed
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))):
		return runtime.Wrap(runtime.CodeClusterUnavailable, nil, "the request was cancelled, or the server is stopping")
	case gql == nil:
		return runtime.Wrap(runtime.CodeInternal, err, "")
	case gql.Extensions["code"] == "COMPLEXITY_LIMIT_EXCEEDED":
		return runtime.Errorf(runtime.CodeLimitExceeded, "%s: request fewer entries (first), or fewer fields of each", gql.Message)
	case gql.Extensions["code"] == runtime.CodeSlowConsumer:
		return runtime.Errorf(runtime.CodeSlowConsumer, "%s", gql.Message)
	case strings.HasPrefix(gql.Message, "exceeded maximum nesting depth"):
		return runtime.Errorf(runtime.CodeLimitExceeded, "the document is nested too deeply: split it")
	case strings.HasPrefix(gql.Message, "exceeded token limit"):
		return runtime.Errorf(runtime.CodeLimitExceeded, "the document has more than %d tokens: split it", MaxTokens)
	case gql.Err == nil || gql.Extensions["code"] != nil || fieldOf(ctx, gql.Path) != "": // gqlgen's own: the document or its variables are invalid
		return &runtime.Error{Code: runtime.CodeInvalidInput, Field: fieldOf(ctx, gql.Path), Message: gql.Message}
	default:
		return runtime.Wrap(runtime.CodeInternal, err, "")
	}
}

// Recover converts a panic to an error, which becomes INTERNAL.
func (p Presenter) Recover(ctx context.Context, panicked any) error {
	return p.Present(ctx, fmt.Errorf("panic: %v\n%s", panicked, debug.Stack()))
}

// A presentedError marks an error that Present made.
type presentedError struct{ gql *gqlerror.Error }

func (e *presentedError) Error() string { return e.gql.Message }

// extensions returns the extensions of an error: its code, whether it is retryable, and more facts.
func extensions(err *runtime.Error) map[string]any {
	out := map[string]any{"code": err.Code, "retryable": err.Code.Retryable()}
	if err.Code == runtime.CodeInvalidInput && err.Field != "" {
		out["field"] = shorten(err.Field, maxMessage)
	}
	if err.Offset != nil {
		out["offset"] = *err.Offset
	}
	if q := err.Exceeded; q != nil {
		out["quota"], out["limit"], out["used"] = q.Quota, q.Limit, q.Used
		if q.Pending > 0 {
			out["pending"] = q.Pending
		}
		if q.RetryAfter > 0 {
			out[RetryAfter] = int64(math.Ceil(q.RetryAfter.Seconds()))
		}
	}
	return out
}

// fieldOf returns the name of the argument that an error's path leads to, as the API spells it:
// "limits.outputBytes" for claimRunner.input.limits.outputBytes and for
// variable.input.limits.outputBytes. It is "" if the path leads to no argument.
func fieldOf(ctx context.Context, path ast.Path) string {
	if len(path) > 0 && path[0] == ast.PathName("variable") {
		path = path[1:]
	} else if field := graphql.GetFieldContext(ctx); field != nil {
		path = path[min(len(path), len(field.Path())):]
	} else {
		return ""
	}
	if len(path) > 1 && path[0] == ast.PathName("input") {
		path = path[1:]
	}
	parts := make([]string, len(path))
	for i, part := range path {
		parts[i] = fmt.Sprint(part)
	}
	return strings.Join(parts, ".")
}

// WrongMethod responds to a request for the API of a method that no transport supports.
func WrongMethod(w http.ResponseWriter) {
	w.Header().Set("Allow", http.MethodGet+", "+http.MethodPost)
	RefuseTyped(w, http.StatusMethodNotAllowed, runtime.Errorf(runtime.CodeInvalidInput,
		"send a POST or GET, or open a WebSocket with the subprotocol %s", Subprotocol))
}

// RefuseTyped responds, in GraphQL's form, to a request that doesn't reach GraphQL. The client gets
// the error's message unchanged.
func RefuseTyped(w http.ResponseWriter, status int, err *runtime.Error) {
	Answer(w, status, &gqlerror.Error{Message: err.Message, Extensions: extensions(err)})
}

// Answer responds to a request that doesn't reach GraphQL with a presented error.
func Answer(w http.ResponseWriter, status int, err *gqlerror.Error) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(Encode(&graphql.Response{Errors: gqlerror.List{err}})) // a client that left needs no answer
}
