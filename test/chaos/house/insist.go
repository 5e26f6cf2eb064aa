package house

import (
	"context"
	"errors"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/chaos/ledger"
	"github.com/rockpool/rockpool/test/chaos/moment"
)

// The patience of clients: with one call, and with the servers.
const (
	CallWithin   = 45 * time.Second
	InsistWithin = 2 * time.Minute
)

// Insist repeats a call that is safe to repeat until a server answers. It returns the server's
// refusal. It records errors that nothing explains.
func (h *House) Insist(ctx context.Context, send func(context.Context) error) error {
	began := time.Now()
	for {
		call, cancel := context.WithTimeout(ctx, CallWithin)
		err := send(call)
		cancel()
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case time.Since(began) > InsistWithin:
			h.Ledger.Wrong(ledger.FalseErrors, 1, "no answer within %s: %v", InsistWithin, err)
			return err
		case client.Passing(err) || h.Excused(began, err):
			moment.Pause(ctx, 30*time.Millisecond)
		default:
			return err
		}
	}
}

// Excused reports whether a full disk explains an error.
func (h *House) Excused(since time.Time, err error) bool {
	return CodeOf(err) == runtime.CodeStorageFull && h.Ledger.WasFull(since)
}

// CodeOf returns the code of a refusal; "" for other errors.
func CodeOf(err error) runtime.Code {
	var refused *client.Error
	if errors.As(err, &refused) {
		return refused.Extensions.Code
	}
	return ""
}

// Refused records an error that nothing explains, unless the run is over.
func (h *House) Refused(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		h.Ledger.Wrong(ledger.FalseErrors, 1, "%s: %v", what, err)
	}
}
