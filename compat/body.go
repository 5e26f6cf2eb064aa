package compat

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

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
