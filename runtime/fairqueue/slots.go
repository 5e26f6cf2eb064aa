package fairqueue

import (
	"context"
	"sync"

	"github.com/rockpool/rockpool/runtime"
)

// Slots limits concurrent work to its capacity. It guarantees no order.
type Slots chan struct{}

// Do calls work in a slot. It returns ctx's cause, without working, if ctx ends before a slot is free.
func (s Slots) Do(ctx context.Context, work func() error) error {
	select {
	case s <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s }()
	return work()
}

// TenantSlots limits concurrent work in total, and that of each tenant to a part of the total. So slow work of
// one tenant doesn't keep others from theirs. It guarantees no order. It is safe for concurrent use.
type TenantSlots struct {
	all  Slots
	each int

	mu      sync.Mutex // guards tenants
	tenants map[runtime.TenantID]*tenantSlots
}

type tenantSlots struct {
	Slots
	calls int // working or waiting; guarded by TenantSlots.mu
}

// NewTenantSlots returns total slots, of which a tenant may have each at a time.
func NewTenantSlots(total, each int) *TenantSlots {
	return &TenantSlots{all: make(Slots, total), each: each, tenants: map[runtime.TenantID]*tenantSlots{}}
}

// Do calls work in a slot of a tenant. It returns ctx's cause, without working, if ctx ends before one is free.
func (s *TenantSlots) Do(ctx context.Context, tenant runtime.TenantID, work func() error) error {
	s.mu.Lock()
	own := s.tenants[tenant]
	if own == nil {
		own = &tenantSlots{Slots: make(Slots, s.each)}
		s.tenants[tenant] = own
	}
	own.calls++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if own.calls--; own.calls == 0 {
			delete(s.tenants, tenant)
		}
	}()
	// The tenant's slot comes first, so that calls that wait for it take no shared slot.
	return own.Do(ctx, func() error { return s.all.Do(ctx, work) })
}
