package doors

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rockpool/rockpool/graph/transport/peers"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

// bodyTime is how long a body may take to arrive.
const bodyTime = time.Minute

type holdKey struct{}

// holding returns a context whose request takes memory of its caller, and a function that gives back all.
func (h Host) holding(ctx context.Context) (_ context.Context, release func()) {
	p := access.Of(ctx)
	shown := peers.Shown{Token: p.ID}
	if p.Grant != nil {
		shown.Grant = p.Grant.ID
	}
	hold := h.Peers.Hold(ctx, shown)
	return context.WithValue(ctx, holdKey{}, &hold), hold.Release
}

// HoldOf returns what an authenticated request has taken of its caller's bounds. It is released when the handler returns.
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

// ReadBody reads an authenticated request's body. It takes memory of the request's hold as bytes arrive: a body of which
// nothing arrives holds none. It returns QUOTA_EXCEEDED where there is none left, or a *BodyError.
func (h Host) ReadBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	tooLarge := &BodyError{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body must be at most %d bytes", h.MaxBody)}
	if r.ContentLength > h.MaxBody {
		return nil, tooLarge
	}
	deadlines := http.NewResponseController(w)
	_ = deadlines.SetReadDeadline(time.Now().Add(bodyTime))       // where that isn't possible, it ends with the connection
	defer func() { _ = deadlines.SetReadDeadline(time.Time{}) }() // else the answer would end by then
	text, err := HoldOf(r).Read(http.MaxBytesReader(w, r.Body, h.MaxBody), r.ContentLength, h.MaxBody)
	large := new(http.MaxBytesError)
	switch {
	case err == nil:
		return text, nil
	case errors.As(err, &large), errors.Is(err, peers.ErrTooLong):
		return nil, tooLarge
	case runtime.CodeOf(err) == runtime.CodeQuotaExceeded:
		return nil, err
	default:
		return nil, &BodyError{http.StatusBadRequest, "the body broke off"}
	}
}
