package engine

import (
	"context"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/ticket"
)

// ClaimLater requests a runner as Claim does, but waits in the background: for an hour without WaitFor.
// It returns a ticket, which is CLAIMED already if a runner was idle. The subscriber has to poll it
// with Ticket or follow it with WatchTicket, or else the ticket is cancelled. A claim that fails
// immediately makes no ticket.
//
// The same key returns the same ticket while it waits or has a runner, and is known; after that a
// new ticket, for the runner that Claim would return. The same holder gets the same ticket while it
// waits. It keeps the runner even if nothing polls the ticket. claimed, if not nil, is called once
// a new ticket has its runner.
func (e *Engine) ClaimLater(ctx context.Context, in ClaimInput, claimed func(ticket.Ticket)) (ticket.Ticket, error) {
	claim, err := in.alone()
	if err != nil {
		return ticket.Ticket{}, err
	}
	if in.WaitFor == nil {
		claim.WaitFor = maxWait
	}
	id, key, held := in.EnvironmentID, claim.Claim.Key, in.Holder != nil
	if held {
		key = holderKey(id, claim.Claim)
	}
	return e.tickets.Open(ctx, ticket.Order{
		Tenant: claim.Claim.Tenant, EnvironmentID: id, WaitFor: claim.WaitFor, Key: key, Input: claim.Claim.Input, Bytes: bytesOfLabels(claim.Claim.Labels), Held: held, Claimed: claimed,
		Claim: func(ctx context.Context, waiting *pool.Queued) (runtime.RunnerID, bool, error) {
			claim := claim
			claim.Queued = waiting
			// Unlike another claim with a key, it ends with ctx, and so with the ticket.
			spawn := func(f func(context.Context)) error { return e.Go(ctx, f) }
			r, ours, err := e.claimBy(ctx, spawn, id, claim)
			return r.ID, ours, err
		},
		Place: func(ctx context.Context, waiting *pool.Queued) pool.QueuePosition {
			p := e.catalog.pool(id)
			if p == nil {
				return pool.QueuePosition{}
			}
			return p.QueuePosition(ctx, waiting)
		},
	})
}

// releaseUnseen releases the runner of a ticket that was cancelled, or that its subscriber never saw.
func (e *Engine) releaseUnseen(ctx context.Context, id runtime.RunnerID) {
	if _, err := e.Release(ctx, id); err != nil && ctx.Err() == nil {
		e.logger.Warn("a ticket's runner could not be released; its inactivity timeout will end it", zap.String("runner", string(id)), zap.Error(err))
	}
}

// TicketTenant returns a ticket's tenant, for permission checks before Ticket, WatchTicket and
// CancelTicket. It doesn't count as a poll of the ticket. It returns TICKET_NOT_FOUND for an unknown one.
func (e *Engine) TicketTenant(id runtime.TicketID) (runtime.TenantID, error) {
	return e.tickets.Tenant(id)
}

// Ticket returns the current state of a ticket, and counts as a poll. It returns TICKET_NOT_FOUND for an
// unknown one.
func (e *Engine) Ticket(ctx context.Context, id runtime.TicketID) (ticket.Ticket, error) {
	return e.tickets.Get(ctx, id)
}

// WatchTicket sends the current state of a ticket, then each change, at most four per second. A slow
// receiver gets only the latest. The channel is closed after the final state, and when ctx ends. It
// returns TICKET_NOT_FOUND for an unknown ticket.
func (e *Engine) WatchTicket(ctx context.Context, id runtime.TicketID) (<-chan ticket.Ticket, error) {
	if _, err := e.tickets.Tenant(id); err != nil {
		return nil, err
	}
	out := make(chan ticket.Ticket)
	return out, e.Go(ctx, func(ctx context.Context) {
		defer close(out)
		defer e.CountSubscription(WatchTickets)()
		_ = e.tickets.Watch(ctx, id, out) // ends with ctx or with the ticket
	})
}

// CancelTicket cancels a waiting ticket. It also cancels one whose runner was never seen, and releases
// that runner. Any other ticket stays unchanged. It returns TICKET_NOT_FOUND for an unknown one.
func (e *Engine) CancelTicket(_ context.Context, id runtime.TicketID) (ticket.Ticket, error) {
	return e.tickets.Cancel(id)
}
