package main

import (
	"context"
	"errors"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

// Bounds of how patient clients are: with one call, and with the servers.
const (
	callWithin = 45 * time.Second
	askWithin  = 2 * time.Minute
)

// insist repeats what is safe to repeat until a server answers it, with what it refuses
// it for. An error that has no cause is noted.
func (h *house) insist(ctx context.Context, send func(context.Context) error) error {
	began := time.Now()
	for {
		call, cancel := context.WithTimeout(ctx, callWithin)
		err := send(call)
		cancel()
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case time.Since(began) > askWithin:
			h.ledger.wrong(falseErrors, 1, "no answer within %s: %v", askWithin, err)
			return err
		case client.Passing(err) || h.excused(began, err):
			pause(ctx, 30*time.Millisecond)
		default:
			return err
		}
	}
}

// excused reports whether an error is of a disk that was full.
func (h *house) excused(since time.Time, err error) bool {
	return codeOf(err) == runtime.CodeStorageFull && h.ledger.wasFull(since)
}

// codeOf returns the code of a refusal; "" for what isn't one.
func codeOf(err error) runtime.Code {
	var refused *client.Error
	if errors.As(err, &refused) {
		return refused.Extensions.Code
	}
	return ""
}

// refused notes an error that nothing explains, unless the run is over.
func (h *house) refused(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		h.ledger.wrong(falseErrors, 1, "%s: %v", what, err)
	}
}
