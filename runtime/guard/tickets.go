package guard

import (
	"context"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/ticket"
)

// ClaimLater claims a runner for the caller's tenant in the background; see
// [engine.Engine.ClaimLater]. The ticket and its runner are two entries of the audit log.
func (g *Guard) ClaimLater(ctx context.Context, in engine.ClaimInput) (t ticket.Ticket, err error) {
	defer func() {
		record(ctx, g, "claimRunner", ofTicket, t.ID, owner(in.Tenant, err), err, resumption(t.Resumed)...)
	}()
	p, err := g.caller(ctx, "claimRunner")
	if err != nil {
		return ticket.Ticket{}, err
	}
	asked := in.EnvironmentID
	in.Tenant, in.EnvironmentID = g.claimant(p, asked)
	in.Keys = p.Keys()
	alone := access.Alone(ctx)
	t, err = g.engine.ClaimLater(ctx, in, func(of ticket.Ticket) {
		record(alone, g, "claimRunner", ofRunner, of.Runner, of.Tenant, nil, append(resumption(of.Resumed), audit.Ref("ticket", of.ID))...)
	})
	return t, noEnvironment(err, asked, in.EnvironmentID)
}

// WaitingClaims returns the waiting claims of the caller's tenant, or of all for a caller for all
// tenants; see [engine.Engine.WaitingClaims].
func (g *Guard) WaitingClaims(ctx context.Context, filter engine.WaitingFilter, first int, after string) (claims []engine.WaitingClaim, total int, err error) {
	p, err := g.caller(ctx, "waitingClaims")
	if err != nil {
		return nil, 0, err
	}
	var sees bool
	if filter.Tenant, sees = narrowed(p, filter.Tenant); !sees {
		return nil, 0, nil
	}
	claims, total = g.engine.WaitingClaims(ctx, filter, first, after)
	return claims, total, nil
}

// allowTicket returns an error unless the caller may use an operation on a ticket. For another
// tenant's ticket it returns TICKET_NOT_FOUND.
func (g *Guard) allowTicket(ctx context.Context, op access.Operation, id runtime.TicketID) error {
	p, err := g.caller(ctx, op)
	if err != nil {
		return err
	}
	tenant, err := g.engine.TicketTenant(id)
	if err == nil && !p.SeesTenant(tenant) {
		return ticket.NotFound(id)
	}
	return err
}

// Ticket returns a ticket that the caller sees; see [engine.Engine.Ticket].
func (g *Guard) Ticket(ctx context.Context, id runtime.TicketID) (ticket.Ticket, error) {
	if err := g.allowTicket(ctx, "ticket", id); err != nil {
		return ticket.Ticket{}, err
	}
	return g.engine.Ticket(ctx, id)
}

// WatchTicket follows a ticket that the caller sees; see [engine.Engine.WatchTicket].
func (g *Guard) WatchTicket(ctx context.Context, id runtime.TicketID) (<-chan ticket.Ticket, error) {
	if err := g.allowTicket(ctx, "ticketEvents", id); err != nil {
		return nil, err
	}
	return g.engine.WatchTicket(ctx, id)
}

// CancelTicket cancels a ticket that the caller sees; see [engine.Engine.CancelTicket].
func (g *Guard) CancelTicket(ctx context.Context, id runtime.TicketID) (_ ticket.Ticket, err error) {
	defer g.recording(ctx, "cancelTicket", ofTicket, string(id))(&err)
	if err = g.allowTicket(ctx, "cancelTicket", id); err != nil {
		return ticket.Ticket{}, err
	}
	return g.engine.CancelTicket(ctx, id)
}
