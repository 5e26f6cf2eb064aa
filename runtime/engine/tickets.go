package engine

import (
	"context"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/ticket"
)

// Tickets serves claims that wait in the background to callers. Another tenant's ticket doesn't exist
// for a caller: the error is TICKET_NOT_FOUND.
type Tickets struct{ e *Engine }

// object returns a ticket as the object of an operation. That doesn't count as a poll of the ticket.
func (s *Tickets) object(id runtime.TicketID) audit.Object {
	return audit.Object{Kind: audit.OfTicket, ID: string(id), Find: func(p access.Principal) (runtime.TenantID, error) {
		tenant, err := s.e.ticketRegistry.Tenant(id)
		if err != nil {
			return audit.WholeServer, err
		}
		return audit.Seen(tenant, p.SeesTenant(tenant), ticket.NotFound(id))
	}}
}

// Open requests a runner as Runners.Claim does, but waits in the background: for an hour without
// WaitFor. It returns a ticket, which is CLAIMED already if a runner was idle. The subscriber has to
// poll it with Get or follow it with Watch, or else the ticket is cancelled. A claim that fails
// immediately makes no ticket. The ticket and its runner are two entries of the audit log.
//
// The same key returns the same ticket while it waits or has a runner, and is known; after that a
// new ticket, for the runner that Claim would return. The same holder gets the same ticket while it
// waits. It keeps the runner even if nothing polls the ticket.
func (s *Tickets) Open(ctx context.Context, in request.Claim) (t ticket.Ticket, err error) {
	err = s.e.claiming(ctx, in, audit.OfTicket, func(id runtime.EnvironmentID, claim pool.Claim) (string, bool, error) {
		if in.WaitFor == nil {
			claim.WaitFor = request.MaxWait
		}
		key, held := claim.Claim.Key, in.Holder != nil
		if held {
			key = request.HolderKey(id, claim.Claim)
		}
		alone := access.Alone(ctx)
		t, err = s.e.ticketRegistry.Open(ctx, ticket.Order{
			Tenant: claim.Claim.Tenant, EnvironmentID: id, WaitFor: claim.WaitFor, Key: key, Input: claim.Claim.Input, Bytes: quota.BytesOfLabels(claim.Claim.Labels), Held: held,
			Claim: func(ctx context.Context, queued *pool.Queued) (runtime.RunnerID, bool, error) {
				claim := claim
				claim.Queued = queued
				// Unlike another claim with a key, it ends with ctx, and so with the ticket.
				spawn := func(f func(context.Context)) error { return s.e.jobs.Go(ctx, f) }
				r, ours, err := s.e.claimBy(ctx, spawn, id, claim)
				return r.ID, ours, err
			},
			Claimed: func(of ticket.Ticket) {
				s.e.auth.Record(alone, "claimRunner", audit.OfRunner, string(of.Runner), of.Tenant, nil, append(resumption(of.Resumed), audit.Ref("ticket", of.ID))...)
			},
			Position: func(ctx context.Context, queued *pool.Queued) pool.QueuePosition {
				p := s.e.environmentRegistry.Pool(id)
				if p == nil {
					return pool.QueuePosition{}
				}
				return p.QueuePosition(ctx, queued)
			},
		})
		return string(t.ID), t.Resumed, err
	})
	return t, err
}

// Get returns the current state of a ticket, and counts as a poll.
func (s *Tickets) Get(ctx context.Context, id runtime.TicketID) (ticket.Ticket, error) {
	return audit.Do(ctx, s.e.auth, "ticket", s.object(id), func() (ticket.Ticket, error) { return s.e.ticketRegistry.Get(ctx, id) })
}

// Watch sends the current state of a ticket, then each change, at most four per second. A slow receiver
// gets only the latest. The channel is closed after the final state, and when ctx ends.
func (s *Tickets) Watch(ctx context.Context, id runtime.TicketID) (<-chan ticket.Ticket, error) {
	return audit.Do(ctx, s.e.auth, "ticketEvents", s.object(id), func() (<-chan ticket.Ticket, error) {
		out := make(chan ticket.Ticket)
		return out, s.e.jobs.Go(ctx, func(ctx context.Context) {
			defer close(out)
			defer s.e.counts.Subscription(activity.WatchTickets)()
			_ = s.e.ticketRegistry.Watch(ctx, id, out) // ends with ctx or with the ticket
		})
	})
}

// Cancel cancels a waiting ticket. It also cancels one whose runner was never seen, and releases that
// runner. Any other ticket stays unchanged.
func (s *Tickets) Cancel(ctx context.Context, id runtime.TicketID) (ticket.Ticket, error) {
	return audit.Do(ctx, s.e.auth, "cancelTicket", s.object(id), func() (ticket.Ticket, error) { return s.e.ticketRegistry.Cancel(id) })
}
