// Package share divides what a server has for all tenants, so that none takes all of it.
package share

import "github.com/rockpool/rockpool/runtime"

// A Bound limits how many things of one kind tenants have together. A tenant gets one more while
// it has fewer than are left for all: one alone gets half, a second one half of the rest, and so
// on. It always gets its first one. So tenants may have one each beyond the limit. A Bound isn't
// safe for concurrent use.
type Bound struct {
	Limit int
	Quota string // what [runtime.Exceeded] calls it
	Of    string // what it limits, for people: "running batches"

	taken int
	has   map[runtime.TenantID]int
}

// Acquire takes one. It returns QUOTA_EXCEEDED, and takes nothing, if the tenant has its share.
func (b *Bound) Acquire(id runtime.TenantID) error {
	left, has := max(0, b.Limit-b.taken), b.has[id]
	if has > 0 && has >= left {
		e := runtime.Errorf(runtime.CodeQuotaExceeded, "tenant %s has %d %s, its share of the %d for all tenants: try again when one of them has ended", id, has, b.Of, b.Limit)
		// No other figure: it would tell what the others have.
		e.Exceeded = &runtime.Exceeded{Quota: b.Quota, Limit: int64(has), Used: int64(has)}
		return e
	}
	b.Adopt(id)
	return nil
}

// Adopt takes one, whatever the limit: a server that starts finds it taken.
func (b *Bound) Adopt(id runtime.TenantID) {
	if b.has == nil {
		b.has = map[runtime.TenantID]int{}
	}
	b.has[id]++
	b.taken++
}

// Release gives back one that the tenant has. Giving back more does nothing.
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
