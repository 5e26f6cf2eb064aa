package ticket

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/share"
)

// Options are what a Book works with.
type Options struct {
	// Spawn starts a goroutine that its caller waits for. The goroutine's ctx ends when
	// it is to end.
	Spawn func(func(context.Context)) error
	// Release ends the claim of a runner that nobody wants.
	Release func(context.Context, runtime.RunnerID)

	Grace time.Duration // how long a holder may stay away; 0: DefaultGrace
}

// DefaultGrace is how long a holder may stay away.
const DefaultGrace = 30 * time.Second

// Bounds of a Book.
const (
	keep = 5 * time.Minute // for so long a ticket that ended is known
	most = 20_000          // tickets of all tenants are known at once; one tenant alone gets half
)

// Pauses of a Book.
const (
	prompt     = 100 * time.Millisecond // how long Open waits for the beginning of a claim
	watchEvery = 250 * time.Millisecond // how often a watcher may get another position
)

// A Book keeps tickets. Its methods are safe for concurrent use.
type Book struct {
	options Options

	mu     sync.Mutex // guards all below, and all entries
	byID   map[runtime.TicketID]*entry
	byKey  map[key]*entry // of those whose key gives no other ticket
	ended  []*entry       // whose claims need nothing more, in the order in which they came there
	shares share.Bound    // of those in byID
}

// A key is an idempotency key. Two tenants may use the same.
type key struct {
	tenant runtime.TenantID
	text   string
}

// An Order says what a ticket is for.
type Order struct {
	Tenant        runtime.TenantID
	EnvironmentID runtime.EnvironmentID
	WaitFor       time.Duration // how long Claim waits
	Key           string        // the same gives the same ticket while that waits or has a runner, and is known; "": there is none
	Input         string        // digest of what is asked with Key
	Held          bool          // Key is a holder's: it gives the same ticket while that waits only, and the runner stays though nobody sees it

	// Claim makes the claim, with this Waiting, until ctx ends. NO_RUNNER_AVAILABLE
	// means that none was there for as long as it could wait. If the cause of ctx's
	// end is pool.ErrUnwanted, no runner may be left.
	// Ours reports that the runner is this claim's. Otherwise another request with Key
	// has it, and the ticket never releases it.
	Claim func(context.Context, *pool.Waiting) (id runtime.RunnerID, ours bool, err error)
	// Claimed is called once the ticket has its runner. Nil: nothing is called.
	Claimed func(Ticket)
	// Place says where the claim is.
	Place func(context.Context, *pool.Waiting) pool.Place
}

// An entry is a ticket of a Book. Book.mu guards what changes.
type entry struct {
	order   Order
	waiting *pool.Waiting
	decided chan struct{} // closed when it isn't WAITING any more
	seen    chan struct{} // closed when CLAIMED was seen

	ticket   Ticket
	cancel   context.CancelCauseFunc // ends the claim, or the wait for somebody to see it; nil: it hasn't begun
	looked   time.Time               // when its holder looked at it last
	watchers int
	left     *time.Timer // fires when its holder may have stayed away for too long
	forgetAt time.Time   // once it is among the ended
}

// New returns an empty Book.
func New(options Options) *Book {
	options.Grace = cmp.Or(options.Grace, DefaultGrace)
	return &Book{options: options, byID: map[runtime.TicketID]*entry{}, byKey: map[key]*entry{}, shares: share.Bound{Limit: most, Quota: "tickets", Of: "tickets"}}
}

// Open returns a new ticket, or the ticket of an order with the same key: for a holder as one that
// is Resumed. CONFLICT: that order had another input. A ticket that ended without a runner frees its key. Open returns
// when the claim is answered or begins to wait, or after a tenth of a second. A claim that
// fails before it waits makes no ticket: Open returns its error. QUOTA_EXCEEDED: the tenant
// has its share of tickets, and none of them has ended.
func (b *Book) Open(ctx context.Context, order Order) (Ticket, error) {
	t, isNew, err := b.enter(order)
	switch {
	case err != nil:
		return Ticket{}, err
	case !isNew:
		joined := b.read(ctx, t, true)
		joined.Resumed = order.Held
		return joined, nil
	}
	if err := b.options.Spawn(func(ctx context.Context) { b.follow(ctx, t) }); err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		t.left.Stop()
		b.forget(t)
		return Ticket{}, err
	}
	late := time.NewTimer(prompt)
	defer late.Stop()
	select {
	case <-t.waiting.Began():
	case <-t.decided:
		if err := b.rejected(t); err != nil {
			return Ticket{}, err
		}
	case <-late.C:
	case <-ctx.Done():
		if order.Key == "" { // nobody will ever know its id
			_, _ = b.Cancel(t.ticket.ID)
		}
		return Ticket{}, context.Cause(ctx)
	}
	return b.read(ctx, t, true), nil
}

// rejected forgets a ticket whose claim failed before it waited, and returns why.
func (b *Book) rejected(t *entry) error {
	select {
	case <-t.waiting.Began():
		return nil
	default:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.ticket.State != Failed && t.ticket.State != Expired {
		return nil
	}
	b.forget(t)
	return t.ticket.Err
}

// Tenant returns the tenant of a ticket. It doesn't count as a look of the holder.
// TICKET_NOT_FOUND: there is no such ticket (any more).
func (b *Book) Tenant(id runtime.TicketID) (runtime.TenantID, error) {
	t, err := b.find(id)
	if err != nil {
		return "", err
	}
	return t.order.Tenant, nil
}

// Get returns a ticket as it is, and counts as a look of its holder. TICKET_NOT_FOUND:
// there is no such ticket (any more).
func (b *Book) Get(ctx context.Context, id runtime.TicketID) (Ticket, error) {
	t, err := b.find(id)
	if err != nil {
		return Ticket{}, err
	}
	return b.read(ctx, t, true), nil
}

// Watch sends a ticket as it is, then each change: at most four a second, and only the
// latest to a slow receiver. It returns nil after it has sent the ticket's end, and ctx's
// cause if ctx ends first. Until then it counts as a look of the holder.
// TICKET_NOT_FOUND: there is no such ticket (any more).
func (b *Book) Watch(ctx context.Context, id runtime.TicketID, out chan<- Ticket) error {
	t, err := b.find(id)
	if err != nil {
		return err
	}
	b.watching(t, 1)
	defer b.watching(t, -1)
	again := time.NewTicker(watchEvery)
	defer again.Stop()
	var sent Ticket
	for {
		ticket := b.read(ctx, t, false)
		receiver, decided := out, t.decided
		if !ticket.news(sent) {
			receiver = nil
		}
		if ticket.State != Waiting {
			decided = nil
		}
		select {
		case receiver <- ticket:
			if b.saw(t, ticket); ticket.State != Waiting {
				return nil
			}
			sent = ticket
			select { // a while until the next one
			case <-again.C:
			case <-t.decided:
			case <-ctx.Done():
			}
		case <-decided:
		case <-again.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Cancel cancels a ticket that waits, or whose runner the holder hasn't seen; that runner
// is released. Any other ticket stays as it is: its holder releases the runner as usual.
// TICKET_NOT_FOUND: there is no such ticket (any more).
func (b *Book) Cancel(id runtime.TicketID) (Ticket, error) {
	t, err := b.find(id)
	if err != nil {
		return Ticket{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end(t, "it was cancelled")
	return t.ticket, nil
}
