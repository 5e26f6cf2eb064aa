package doors

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/rockpool/rockpool/graph/transport/arriving"
	"github.com/rockpool/rockpool/graph/transport/peers"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

type holdKey struct{}

// holding returns a context whose request takes of its caller's bounds, and what it has taken.
func (h Host) holding(ctx context.Context) (context.Context, *peers.Hold) {
	p := access.FromContext(ctx)
	shown := peers.Credential{Token: p.ID}
	if p.Grant != nil {
		shown.Grant = p.Grant.ID
	}
	hold := h.Peers.Hold(ctx, shown)
	return context.WithValue(ctx, holdKey{}, &hold), &hold
}

// HoldOf returns what an authenticated request has taken of its caller's bounds: it counts as an operation. It is released
// when the handler returns.
func HoldOf(r *http.Request) *peers.Hold {
	if hold, ok := r.Context().Value(holdKey{}).(*peers.Hold); ok {
		return hold
	}
	return new(peers.Hold)
}

// A BodyError says with which status a body is refused, and why.
type BodyError struct {
	Status  int
	Message string
}

func (e *BodyError) Error() string { return e.Message }

// ReadBody reads an authenticated request's body, as the API reads its bodies. It takes memory of the request's hold as bytes
// arrive: a body of which nothing arrives holds none. It returns QUOTA_EXCEEDED where there is none left, or a *BodyError.
// Then no memory is held, and the answer must be written next. What the client still sends has been read for a while, unless
// the body's announced length is too long, the body was late or broke off, or its client waits to be asked for it.
func (h Host) ReadBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, hold := arriving.New(w, r, arriving.DefaultSilence), HoldOf(r)
	text, err := body.ReadAll(hold, h.MaxBody)
	if err == nil {
		return text, nil
	}
	hold.ReleaseMemory()
	body.Drain()
	switch code := runtime.CodeOf(err); {
	case errors.Is(err, peers.ErrTooLong):
		return nil, &BodyError{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body must be at most %d bytes", h.MaxBody)}
	case code == runtime.CodeQuotaExceeded:
		return nil, err
	case code == runtime.CodeLimitExceeded:
		return nil, &BodyError{http.StatusRequestTimeout, runtime.MessageOf(err)}
	default:
		return nil, &BodyError{http.StatusBadRequest, "the body broke off"}
	}
}
