package graph

import (
	"context"
	"time"

	"github.com/rockpool/rockpool/graph/generated"
	"github.com/rockpool/rockpool/graph/model"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/ticket"
	"github.com/rockpool/rockpool/runtime/usage"
)

func (r query) Runners(ctx context.Context, env *string, states []runtime.RunnerState, heldBy *string, labels []runtime.LabelFilter, from, to *time.Time, first *int, after *string, newestFirst *bool) (model.RunnerConnection, error) {
	page, err := model.ParsePage(first, after)
	if err != nil {
		return model.RunnerConnection{}, err
	}
	page.Descending = orZero(newestFirst)
	filter := request.Runners{EnvironmentID: runtime.EnvironmentID(orZero(env)), States: states, HeldBy: orZero(heldBy), Labels: labels, From: orZero(from), To: orZero(to), NewestFirst: page.Descending}
	key := func(runner runtime.Runner) string { return string(runner.ID) }
	found, err := r.engine.Runners.List(ctx, filter)
	return model.CutPage(found, key, page), err
}

func (r query) Runner(ctx context.Context, id string) (*runtime.Runner, error) {
	return r.existingRunner(ctx, runtime.RunnerID(id))
}

// existingRunner returns a runner; nil if it doesn't exist, is gone, or the caller may not see it.
func (r *resolver) existingRunner(ctx context.Context, id runtime.RunnerID) (*runtime.Runner, error) {
	found, ok, err := r.engine.Runners.Get(ctx, id)
	if err != nil || !ok {
		return nil, err
	}
	return &found, nil
}

func (r mutation) ClaimRunner(ctx context.Context, in generated.ClaimRunnerInput) (generated.ClaimRunnerPayload, error) {
	claim := request.Claim{
		EnvironmentID:     runtime.EnvironmentID(in.EnvironmentID),
		InactivityTimeout: in.InactivityTimeout,
		WaitFor:           in.WaitFor,
		Key:               orZero(in.IdempotencyKey),
		Holder:            in.Holder,
		Labels:            in.Labels,
		Caller:            callerOf(ctx),
	}
	if orZero(in.Wait) == generated.ClaimWaitTicket {
		return r.claimLater(ctx, claim)
	}
	claimed, resumed, err := r.engine.Runners.ClaimOrResume(ctx, claim)
	return generated.ClaimRunnerPayload{Runner: &claimed, Resumed: resumed}, err
}

func (r mutation) RenewRunner(ctx context.Context, id string) (generated.RenewRunnerPayload, error) {
	renewed, err := r.engine.Runners.Renew(ctx, runtime.RunnerID(id))
	return generated.RenewRunnerPayload{Runner: renewed}, err
}

func (r mutation) ReleaseRunner(ctx context.Context, id string) (generated.ReleaseRunnerPayload, error) {
	released, err := r.engine.Runners.Release(ctx, runtime.RunnerID(id))
	return generated.ReleaseRunnerPayload{Released: released}, err
}

func (r runner) EnvironmentID(_ context.Context, of *runtime.Runner) (string, error) {
	return string(of.Environment.ID), nil
}

func (r runner) Revision(_ context.Context, of *runtime.Runner) (int, error) {
	return of.Environment.Revision, nil
}

// Claim returns null unless the runner is claimed. A caller that may not see labels doesn't see the
// holder either.
func (r runner) Claim(ctx context.Context, of *runtime.Runner) (*runtime.Claim, error) {
	if !of.Claim.Held() {
		return nil, nil
	}
	claim := of.Claim
	claim.Labels = visibleLabels(ctx, claim.Labels)
	if !access.FromContext(ctx).SeesLabels() {
		claim.Holder = ""
	}
	return &claim, nil
}

func (r runner) Events(ctx context.Context, of *runtime.Runner) ([]runtime.TaskEvent, error) {
	return r.engine.Runners.TaskEvents(ctx, of.ID)
}

func (r subscription) RunnerEvents(ctx context.Context, id *string) (<-chan events.RunnerEvent, error) {
	return r.engine.Runners.Watch(ctx, runtime.EnvironmentID(orZero(id)))
}

// visibleLabels returns the labels that the caller may see.
func visibleLabels(ctx context.Context, labels []runtime.Label) []runtime.Label {
	if !access.FromContext(ctx).SeesLabels() {
		return nil
	}
	return labels
}

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
	return model.LoadedPage(found, func(c usage.WaitingClaim) string { return c.ID }, page, total), err
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
