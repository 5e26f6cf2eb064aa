// Package share divides a server's total of something between all tenants, so that no tenant takes
// all of it.
package share

import "github.com/rockpool/rockpool/runtime"

// A Bound limits how many things of one kind all tenants have together. A tenant gets one more
// while it has fewer than are left for all: one tenant alone gets half, a second one half of the
// rest, and so on. It always gets its first one, so tenants may have one each beyond the limit. A
// Bound isn't safe for concurrent use.
type Bound struct {
	Limit int
	Quota string // name in [runtime.Exceeded]
	Of    string // what is limited, for people: "running batches"

	taken int
	has   map[runtime.TenantID]int
}

// Acquire takes one. It returns QUOTA_EXCEEDED, and takes nothing, if the tenant has its share.
func (b *Bound) Acquire(id runtime.TenantID) error {
	left, has := max(0, b.Limit-b.taken), b.has[id]
	if has > 0 && has >= left {
		e := runtime.Errorf(runtime.CodeQuotaExceeded, "tenant %s has %d %s, its share of the %d for all tenants: try again when one of them has ended", id, has, b.Of, b.Limit)
		// Only the tenant's own number: another one would disclose what others have.
		e.Exceeded = &runtime.Exceeded{Quota: b.Quota, Limit: int64(has), Used: int64(has)}
		return e
	}
	b.Adopt(id)
	return nil
}

// Adopt takes one even beyond the limit, for what a starting server finds in use.
func (b *Bound) Adopt(id runtime.TenantID) {
	if b.has == nil {
		b.has = map[runtime.TenantID]int{}
	}
	b.has[id]++
	b.taken++
}

// Release releases one that the tenant has. Releasing more does nothing.
func (b *Bound) Release(id runtime.TenantID) {
	switch b.has[id] {
	case 0:
		return
	case 1:
		delete(b.has, id)
	default:
		b.has[id]--
	}
	b.taken--
}
