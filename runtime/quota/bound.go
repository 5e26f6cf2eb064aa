package quota

import "github.com/rockpool/rockpool/runtime"

// A Bound limits how many things of one kind all tenants have together. A tenant gets one more
// while it has fewer than are left for all: one tenant alone gets half, a second one half of the
// rest, and so on. It always gets its first one, so tenants may have one each beyond the limit. A
// Bound isn't safe for concurrent use.
type Bound struct {
	Limit int64
	Free  int64  // what each tenant gets even beyond the limit; 0: its first AcquireN
	Quota string // name in [runtime.Exceeded]
	Of    string // what is limited, for people: "running batches"

	taken int64
	has   map[runtime.TenantID]int64
}

// Acquire takes one. It returns QUOTA_EXCEEDED, and takes nothing, if the tenant has its share.
func (b *Bound) Acquire(id runtime.TenantID) error { return b.AcquireN(id, 1) }

// fits reports whether AcquireN takes n.
func (b *Bound) fits(id runtime.TenantID, n int64) bool {
	has := b.has[id]
	return n <= 0 || has+n <= b.Limit-b.taken-n+1 || has+n <= b.Free || has == 0 && b.Free == 0
}

// AcquireN takes n, if at least as many (less one) stay free as the tenant then has.
func (b *Bound) AcquireN(id runtime.TenantID, n int64) error {
	if has := b.has[id]; !b.fits(id, n) {
		e := runtime.Errorf(runtime.CodeQuotaExceeded, "tenant %s has %d %s, its share of the %d for all tenants: try again when one of them has ended", id, has, b.Of, b.Limit)
		// Only the tenant's own number: another one would disclose what others have.
		e.Exceeded = &runtime.Exceeded{Quota: b.Quota, Limit: has, Used: has}
		return e
	}
	b.AdoptN(id, n)
	return nil
}

// Adopt takes one even beyond the limit, for what a starting server finds in use.
func (b *Bound) Adopt(id runtime.TenantID) { b.AdoptN(id, 1) }

// AdoptN takes n, as Adopt does.
func (b *Bound) AdoptN(id runtime.TenantID, n int64) {
	if b.has == nil {
		b.has = map[runtime.TenantID]int64{}
	}
	b.has[id] += n
	b.taken += n
}

// Release releases one that the tenant has. Releasing more does nothing.
func (b *Bound) Release(id runtime.TenantID) { b.ReleaseN(id, 1) }

// ReleaseN releases n, as Release does.
func (b *Bound) ReleaseN(id runtime.TenantID, n int64) {
	n = min(n, b.has[id])
	b.taken -= n
	if b.has[id] > n {
		b.has[id] -= n
	} else {
		delete(b.has, id)
	}
}
