package graph

import (
	"context"

	"github.com/rockpool/rockpool/graph/generated"
	"github.com/rockpool/rockpool/graph/model"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/tenantusage"
	"github.com/rockpool/rockpool/runtime/ticket"
)

// claimLater claims without waiting for a runner.
func (r mutation) claimLater(ctx context.Context, in request.Claim) (generated.ClaimRunnerPayload, error) {
	made, err := r.engine.Tickets.Open(ctx, in)
	if err != nil {
		return generated.ClaimRunnerPayload{}, err
	}
	claimed, err := tickets(r).Runner(ctx, &made)
	return generated.ClaimRunnerPayload{Runner: claimed, Ticket: &made, Resumed: made.Resumed}, err
}

func (r query) Ticket(ctx context.Context, id string) (*ticket.Ticket, error) {
	found, err := r.engine.Tickets.Get(ctx, runtime.TicketID(id))
	return &found, err
}

func (r mutation) CancelTicket(ctx context.Context, id string) (generated.CancelTicketPayload, error) {
	ended, err := r.engine.Tickets.Cancel(ctx, runtime.TicketID(id))
	return generated.CancelTicketPayload{Ticket: ended}, err
}

func (r subscription) TicketEvents(ctx context.Context, id string) (<-chan ticket.Ticket, error) {
	return r.engine.Tickets.Watch(ctx, runtime.TicketID(id))
}

func (r query) WaitingClaims(ctx context.Context, tenant, env *string, first *int, after *string) (model.WaitingClaimConnection, error) {
	page, err := model.ParsePage(first, after)
	if err != nil {
		return model.WaitingClaimConnection{}, err
	}
	only, err := ofTenant(tenant)
	if err != nil {
		return model.WaitingClaimConnection{}, err
	}
	filter := request.Waiting{Tenant: only, EnvironmentID: runtime.EnvironmentID(orZero(env))}
	found, total, err := r.engine.Runners.Waiting(ctx, filter, page.First+1, page.After)
	return model.LoadedPage(found, func(c tenantusage.WaitingClaim) string { return c.ID }, page, total), err
}

func (r tickets) Runner(ctx context.Context, of *ticket.Ticket) (*runtime.Runner, error) {
	if of.Runner == "" {
		return nil, nil
	}
	return r.existingRunner(ctx, of.Runner)
}

func (r tickets) Code(_ context.Context, of *ticket.Ticket) (*runtime.Code, error) {
	if of.Err == nil {
		return nil, nil
	}
	code := runtime.CodeOf(of.Err)
	return &code, nil
}

// Message leaves out the text of an INTERNAL error, which could disclose details of the server.
func (r tickets) Message(_ context.Context, of *ticket.Ticket) (*string, error) {
	if of.Err == nil || runtime.CodeOf(of.Err) == runtime.CodeInternal {
		return nil, nil
	}
	return orNull(runtime.MessageOf(of.Err)), nil
}
