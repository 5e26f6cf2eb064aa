package engine

import (
	"context"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/ticket"
)

// ClaimLater asks for a runner as Claim does, but waits for it in the background: without
// a WaitFor for an hour. It returns a ticket, which is CLAIMED already where a runner was
// idle. The holder has to look at it, by Ticket or WatchTicket, or it is cancelled. A
// claim that fails at once makes no ticket. The same key gives the same ticket while that
// waits or has a runner, and is known; then a new one, for the runner that Claim would return. The
// same holder gets the same ticket while that waits, and its runner stays though nobody looks. It
// calls claimed, if that isn't nil, once a new ticket has its runner.
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
		Tenant: claim.Claim.Tenant, EnvironmentID: id, WaitFor: claim.WaitFor, Key: key, Input: claim.Claim.Input, Held: held, Claimed: claimed,
		Claim: func(ctx context.Context, waiting *pool.Waiting) (runtime.RunnerID, bool, error) {
			claim := claim
			claim.Waiting = waiting
			spawn := func(f func(context.Context)) error { return e.Go(ctx, f) } // it ends with the ticket, also with a key
			r, ours, err := e.claimBy(ctx, spawn, id, claim)
			return r.ID, ours, err
		},
		Place: func(ctx context.Context, waiting *pool.Waiting) pool.Place {
			p := e.catalog.pool(id)
			if p == nil {
				return pool.Place{}
			}
			return p.Place(ctx, waiting)
		},
	})
}

// releaseUnseen releases a runner that the holder of its ticket doesn't want or hasn't
// seen.
func (e *Engine) releaseUnseen(ctx context.Context, id runtime.RunnerID) {
	if _, err := e.Release(ctx, id); err != nil && ctx.Err() == nil {
		e.logger.Warn("the runner of a ticket could not be released", zap.String("runner", string(id)), zap.Error(err))
	}
}

// TicketTenant returns whose a ticket is. That doesn't count as its holder's look: ask
// before Ticket, WatchTicket and CancelTicket. TICKET_NOT_FOUND: there is none (any more).
func (e *Engine) TicketTenant(id runtime.TicketID) (runtime.TenantID, error) {
	return e.tickets.Tenant(id)
}

// Ticket returns a ticket as it is, to its holder. TICKET_NOT_FOUND: there is none (any
// more).
func (e *Engine) Ticket(ctx context.Context, id runtime.TicketID) (ticket.Ticket, error) {
	return e.tickets.Get(ctx, id)
}

// WatchTicket sends a ticket to its holder as it is, then each change, at most four a
// second, the latest only where the receiver is slow. The channel is closed after the
// ticket was sent as it ended, and when ctx ends. TICKET_NOT_FOUND: there is none (any
// more).
func (e *Engine) WatchTicket(ctx context.Context, id runtime.TicketID) (<-chan ticket.Ticket, error) {
	if _, err := e.tickets.Tenant(id); err != nil {
		return nil, err
	}
	out := make(chan ticket.Ticket)
	return out, e.Go(ctx, func(ctx context.Context) {
		defer close(out)
		defer e.Watching(WatchTickets)()
		_ = e.tickets.Watch(ctx, id, out) // ctx's end, or that of the ticket just now
	})
}

// CancelTicket ends a ticket that waits, or whose runner nobody has seen yet, which goes
// then. Any other one stays as it is. TICKET_NOT_FOUND: there is none (any more).
func (e *Engine) CancelTicket(_ context.Context, id runtime.TicketID) (ticket.Ticket, error) {
	return e.tickets.Cancel(id)
}
