package ticket

import (
	"context"
	"slices"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/syncs"
)

// enter adds an entry for an order, or returns the existing one with its key.
func (r *Registry) enter(order Order) (t *entry, isNew bool, err error) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep(now)
	if t := r.byKey[order.key()]; t != nil {
		if t.order.Input != order.Input || t.order.EnvironmentID != order.EnvironmentID {
			return nil, false, runtime.Errorf(runtime.CodeConflict, "this idempotencyKey was used before with a different input: use a new key")
		}
		return t, false, nil
	}
	var kept *quota.Kept
	for {
		if err = r.shares.Acquire(order.Tenant); err == nil {
			if kept, err = r.options.Memory.Keep(order.Tenant, waitingBytes+order.Bytes, "a waiting claim"); err == nil {
				break
			}
			r.shares.Release(order.Tenant)
		}
		// A new ticket replaces the tenant's oldest ended one.
		old := slices.IndexFunc(r.ended, func(t *entry) bool { return t.order.Tenant == order.Tenant })
		if old < 0 {
			return nil, false, err
		}
		r.forget(r.ended[old])
	}
	t = &entry{
		order: order, waiting: pool.NewQueued(), decided: make(chan struct{}), seen: make(chan struct{}), lastPoll: now, kept: kept,
		ticket: Ticket{
			ID: runtime.NewTicketID(), Tenant: order.Tenant, EnvironmentID: order.EnvironmentID, State: Waiting, CreatedAt: now, ExpiresAt: now.Add(order.WaitFor),
		},
	}
	t.left = time.AfterFunc(r.options.Grace, func() { r.check(t) }) // cancels it if nobody polls
	r.byID[t.ticket.ID] = t
	if order.Key != "" {
		r.byKey[order.key()] = t
	}
	return t, true, nil
}

func (o Order) key() key { return key{o.Tenant, o.Key} }

// follow makes the claim of a ticket, and returns when nothing more is to be done for it. It runs
// in a goroutine of Spawn.
func (r *Registry) follow(running context.Context, t *entry) {
	ctx, cancel := context.WithCancelCause(running)
	defer cancel(nil)
	r.mu.Lock()
	t.cancel = cancel
	if t.ticket.State != Waiting { // cancelled before it began
		cancel(pool.ErrUnwanted)
	}
	r.mu.Unlock()
	runner, ours, err := t.order.Claim(ctx, t.waiting)
	if got := r.answer(t, runner, ours, err, running.Err() != nil); got.State == Claimed && t.order.Claimed != nil {
		t.order.Claimed(got)
	}
	// Until a client has seen the runner, check and Cancel may end the ticket, and with it ctx.
	if err == nil {
		select {
		case <-t.seen:
		case <-ctx.Done():
		}
	}
	r.mu.Lock()
	// A cancelled ticket releases its runner, unless that belongs to another request or a holder.
	unwanted := err == nil && ours && t.ticket.State == Cancelled && !t.order.Held
	t.left.Stop()
	t.order.Claim, t.order.Claimed = nil, nil
	t.kept.Shrink(waitingBytes + t.order.Bytes - endedBytes)
	t.forgetAt = time.Now().Add(keep)
	if r.byID[t.ticket.ID] == t {
		r.ended = append(r.ended, t)
	}
	r.mu.Unlock()
	if unwanted {
		r.options.Release(running, runner)
	}
}

// answer records the result of a claim, unless the ticket was cancelled meanwhile. It returns the ticket.
func (r *Registry) answer(t *entry, runner runtime.RunnerID, ours bool, err error, stopping bool) Ticket {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.ticket.State != Waiting {
		return t.ticket
	}
	now := time.Now()
	t.ticket.EndedAt = now
	switch {
	case err == nil:
		t.ticket.State, t.ticket.Runner = Claimed, runner
		t.lastPoll = now // its client has the whole grace period to see it
		if t.order.Held {
			t.ticket.Resumed = !ours
			close(t.seen) // another claim of the holder may use the runner already
		}
	case stopping:
		t.ticket.State, t.ticket.Err = Failed, runtime.Wrap(runtime.CodeClusterUnavailable, err, "the server is stopping: claim again")
	case runtime.CodeOf(err) == runtime.CodeNoRunnerAvailable:
		t.ticket.State, t.ticket.Err = Expired, err
	default:
		t.ticket.State, t.ticket.Err = Failed, err
	}
	close(t.decided)
	if err != nil || t.order.Held {
		r.unkey(t)
	}
	return t.ticket
}

// end cancels a waiting ticket, or one whose runner no client has seen. The caller holds mu.
func (r *Registry) end(t *entry, why string) {
	then := "claim again"
	switch {
	case t.ticket.State == Waiting:
		t.ticket.EndedAt = time.Now()
		close(t.decided)
	case t.ticket.State == Claimed && !syncs.Closed(t.seen):
		if t.order.Key != "" { // its runner is released
			then = "claim again with another idempotencyKey"
		}
	default:
		return
	}
	t.ticket.State, t.ticket.Runner = Cancelled, ""
	t.ticket.Err = runtime.Errorf(runtime.CodeNoRunnerAvailable, "%s: %s", why, then)
	r.unkey(t)
	if t.cancel != nil {
		t.cancel(pool.ErrUnwanted)
	}
}

// check cancels a ticket that wasn't polled for the grace period.
func (r *Registry) check(t *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := r.options.Grace - time.Since(t.lastPoll)
	switch {
	// A watched ticket counts as polled.
	case t.watchers > 0:
		t.left.Reset(r.options.Grace)
	case left > 0:
		t.left.Reset(left)
	default:
		r.end(t, "it was not polled for "+r.options.Grace.String())
	}
}

// read returns the present state of a ticket. With poll, it counts as a poll.
func (r *Registry) read(ctx context.Context, t *entry, poll bool) Ticket {
	r.mu.Lock()
	ticket := t.ticket
	if poll {
		t.polled()
	}
	r.mu.Unlock()
	if ticket.State == Waiting {
		position := t.order.Position(ctx, t.waiting)
		ticket.Position, ticket.EstimatedWait = position.Position, position.EstimatedWait
	}
	return ticket
}

// received records that a watcher received a state of the ticket.
func (r *Registry) received(t *entry, was Ticket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if was.State == t.ticket.State {
		t.polled()
	}
}

// polled records a poll of the ticket. The caller holds mu.
func (t *entry) polled() {
	t.lastPoll = time.Now()
	if t.ticket.State == Claimed && !syncs.Closed(t.seen) {
		close(t.seen)
	}
}

func (r *Registry) watching(t *entry, more int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.watchers += more
	t.lastPoll = time.Now()
}

// find returns a known ticket, or TICKET_NOT_FOUND.
func (r *Registry) find(id runtime.TicketID) (*entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep(time.Now())
	if t := r.byID[id]; t != nil {
		return t, nil
	}
	return nil, NotFound(id)
}

// sweep removes tickets that ended long ago. The caller holds mu.
func (r *Registry) sweep(now time.Time) {
	for len(r.ended) > 0 && !now.Before(r.ended[0].forgetAt) {
		r.forget(r.ended[0])
	}
}

// forget removes a ticket. The caller holds mu.
func (r *Registry) forget(t *entry) {
	if r.byID[t.ticket.ID] != t {
		return
	}
	delete(r.byID, t.ticket.ID)
	r.shares.Release(t.order.Tenant)
	t.kept.Free()
	r.unkey(t)
	switch at := slices.Index(r.ended, t); {
	case at == 0: // the usual case
		r.ended[0] = nil
		r.ended = r.ended[1:]
	case at > 0:
		r.ended = slices.Delete(r.ended, at, at+1)
	}
}

// Forget cancels a deleted tenant's tickets, and removes them with their keys.
func (r *Registry) Forget(tenant runtime.TenantID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.byID {
		if t.order.Tenant == tenant {
			r.end(t, "its tenant was deleted")
			r.forget(t)
		}
	}
}

// unkey detaches a ticket from its key, which then returns another ticket. The caller holds mu.
func (r *Registry) unkey(t *entry) {
	if r.byKey[t.order.key()] == t {
		delete(r.byKey, t.order.key())
	}
}
