package ticket

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/syncs"
)

// Options are a Registry's dependencies and settings.
type Options struct {
	// Spawn starts a goroutine that its provider waits for. The goroutine's ctx ends when it has to end.
	Spawn func(func(context.Context)) error
	// Release ends the claim of an unwanted runner.
	Release func(context.Context, runtime.RunnerID)

	Memory *quota.Memory // for waiting tickets; nil means no limit

	Grace time.Duration // how long a ticket may go unpolled; 0 means DefaultGrace
}

// DefaultGrace is how long a ticket may go unpolled before it is cancelled.
const DefaultGrace = 30 * time.Second

// Limits of a Registry.
const (
	keep = 5 * time.Minute // how long ended tickets are known
	most = 20_000          // known tickets of all tenants; one tenant gets at most half
)

// The memory of a ticket, in bytes: its goroutines and the claim until it has ended, then its record.
const (
	waitingBytes = 16 << 10
	endedBytes   = 1 << 10
)

// Intervals of a Registry.
const (
	prompt     = 100 * time.Millisecond // how long Open waits for the claim to be answered or to begin waiting
	watchEvery = 250 * time.Millisecond // minimum interval between a watcher's updates
)

// A Registry keeps tickets. Its methods are safe for concurrent use.
type Registry struct {
	options Options

	mu     sync.Mutex // guards the fields below, and all entries
	byID   map[runtime.TicketID]*entry
	byKey  map[key]*entry // entries whose key still returns them
	ended  []*entry       // entries that need no more work, in order of their end
	shares quota.Bound    // of the tickets in byID
}

// A key is an idempotency key. Different tenants may use the same text.
type key struct {
	tenant runtime.TenantID
	text   string
}

// An Order describes the claim of a ticket.
type Order struct {
	Tenant        runtime.TenantID
	EnvironmentID runtime.EnvironmentID
	WaitFor       time.Duration // how long Claim waits
	// Key makes orders idempotent: the same key returns the same ticket while that waits or has a
	// runner, and is known; "" means none.
	Key   string
	Input string // digest of the request made with Key
	Bytes int64  // of labels and the like that Claim keeps
	// Held says that Key is a holder's. It returns the same ticket only while that waits, and the
	// runner stays claimed even if nothing polls the ticket.
	Held bool

	// Claim makes the claim, tracked by this Waiting, until ctx ends. NO_RUNNER_AVAILABLE means
	// that no runner became available in time. If ctx's cause is pool.ErrUnwanted, it must leave no
	// runner claimed. ours reports that the runner belongs to this claim. Otherwise it belongs to
	// another request with Key, and the ticket never releases it.
	Claim func(context.Context, *pool.Queued) (id runtime.RunnerID, ours bool, err error)
	// Claimed is called once the ticket has its runner. nil means that nothing is called.
	Claimed func(Ticket)
	// Position returns the claim's position.
	Position func(context.Context, *pool.Queued) pool.QueuePosition
}

// An entry is a ticket of a Registry. Registry.mu guards its mutable fields.
type entry struct {
	order   Order
	waiting *pool.Queued
	decided chan struct{} // closed when it leaves WAITING
	seen    chan struct{} // closed when a client has seen CLAIMED

	ticket   Ticket
	cancel   context.CancelCauseFunc // ends the claim, or the wait for a client to see it; nil means that it has not begun
	lastPoll time.Time               // last poll
	watchers int
	left     *time.Timer // fires when it may have gone unpolled for too long
	forgetAt time.Time   // set once it is in ended
	kept     *quota.Kept
}

// New returns an empty Registry.
func New(options Options) *Registry {
	options.Grace = cmp.Or(options.Grace, DefaultGrace)
	return &Registry{options: options, byID: map[runtime.TicketID]*entry{}, byKey: map[key]*entry{}, shares: quota.Bound{Limit: most, Quota: "tickets", Of: "tickets"}}
}

// Open returns a new ticket, or the ticket of an earlier order with the same key; for a holder that
// one is Resumed. It returns CONFLICT if that order had a different input. A ticket that ended
// without a runner frees its key. Open returns when the claim is answered or begins to wait, or
// after 100 ms. A claim that fails before it waits makes no ticket: Open returns its error. It
// returns QUOTA_EXCEEDED if the tenant has its share of tickets or memory, and none of its tickets
// has ended.
func (r *Registry) Open(ctx context.Context, order Order) (Ticket, error) {
	t, isNew, err := r.enter(order)
	switch {
	case err != nil:
		return Ticket{}, err
	case !isNew:
		joined := r.read(ctx, t, true)
		joined.Resumed = order.Held
		return joined, nil
	}
	if err := r.options.Spawn(func(ctx context.Context) { r.follow(ctx, t) }); err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		t.left.Stop()
		r.forget(t)
		return Ticket{}, err
	}
	select {
	case <-t.waiting.Began():
	case <-t.decided:
		if err := r.rejected(t); err != nil {
			return Ticket{}, err
		}
	case <-time.After(prompt):
	case <-ctx.Done():
		if order.Key == "" { // no client will ever know its id
			_, _ = r.Cancel(t.ticket.ID)
		}
		return Ticket{}, context.Cause(ctx)
	}
	return r.read(ctx, t, true), nil
}

// rejected removes a ticket whose claim failed before it waited, and returns the error.
func (r *Registry) rejected(t *entry) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if syncs.Closed(t.waiting.Began()) || t.ticket.State != Failed && t.ticket.State != Expired {
		return nil
	}
	r.forget(t)
	return t.ticket.Err
}

// Tenant returns the tenant of a ticket. It doesn't count as a poll. It returns TICKET_NOT_FOUND
// for an unknown ticket.
func (r *Registry) Tenant(id runtime.TicketID) (runtime.TenantID, error) {
	t, err := r.find(id)
	if err != nil {
		return "", err
	}
	return t.order.Tenant, nil
}

// Get returns the present state of a ticket, and counts as a poll. It returns TICKET_NOT_FOUND for
// an unknown ticket.
func (r *Registry) Get(ctx context.Context, id runtime.TicketID) (Ticket, error) {
	t, err := r.find(id)
	if err != nil {
		return Ticket{}, err
	}
	return r.read(ctx, t, true), nil
}

// Watch sends the present state of a ticket, then each change: at most four per second, and only
// the latest to a slow receiver. It returns nil after it has sent the final state, and ctx's cause
// if ctx ends first. While it runs, the ticket counts as polled. It returns TICKET_NOT_FOUND for an
// unknown ticket.
func (r *Registry) Watch(ctx context.Context, id runtime.TicketID, out chan<- Ticket) error {
	t, err := r.find(id)
	if err != nil {
		return err
	}
	r.watching(t, 1)
	defer r.watching(t, -1)
	again := time.Tick(watchEvery)
	var sent Ticket
	for {
		ticket := r.read(ctx, t, false)
		// A nil channel is never ready. So nothing is sent without news.
		receiver, decided := out, t.decided
		if !ticket.news(sent) {
			receiver = nil
		}
		if ticket.State != Waiting {
			decided = nil
		}
		select {
		case receiver <- ticket:
			if r.received(t, ticket); ticket.State != Waiting {
				return nil
			}
			sent = ticket
			select { // at least watchEvery until the next one
			case <-again:
			case <-t.decided:
			case <-ctx.Done():
			}
		case <-decided:
		case <-again:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Cancel cancels a waiting ticket, or one whose runner no client has seen, and releases that
// runner. Any other ticket stays unchanged: its client releases the runner as usual. It returns
// TICKET_NOT_FOUND for an unknown ticket.
func (r *Registry) Cancel(id runtime.TicketID) (Ticket, error) {
	t, err := r.find(id)
	if err != nil {
		return Ticket{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(t, "it was cancelled")
	return t.ticket, nil
}
