package quota

import (
	"math"
	"sync"

	"github.com/rockpool/rockpool/runtime"
)

// Small is the number of bytes that each tenant always gets.
const Small = 64 << 10

// Memory limits the bytes that a server keeps for its callers beyond their requests. All kinds draw
// from one limit, which tenants share as they share a [Bound]: one tenant alone gets half. Each tenant
// may keep Small bytes even beyond the limit. A nil Memory has no limit. It is
// safe for concurrent use, and never blocks.
type Memory struct {
	mu    sync.Mutex // guards bound and all Kept
	bound Bound
}

// NewMemory returns a Memory of limit bytes.
func NewMemory(limit int64) *Memory {
	return &Memory{bound: Bound{Limit: limit, Free: Small}}
}

// Kept are bytes that a tenant keeps, until Free. A nil Kept has none. It is safe for concurrent
// use.
type Kept struct {
	of     *Memory
	tenant runtime.TenantID
	bytes  int64
}

// Keep takes bytes of memory. It returns QUOTA_EXCEEDED, and takes nothing, if the tenant has its
// share. It never refuses 0 bytes. what names their use for people: "the start of an execution".
func (m *Memory) Keep(id runtime.TenantID, bytes int64, what string) (*Kept, error) {
	if m == nil {
		return nil, nil
	}
	k := &Kept{of: m, tenant: id}
	if err := k.Grow(bytes, what); err != nil {
		return nil, err
	}
	return k, nil
}

// Adopt takes bytes even beyond the limit, for what a starting server finds.
func (m *Memory) Adopt(id runtime.TenantID, bytes int64) *Kept {
	if m == nil {
		return nil
	}
	k := &Kept{of: m, tenant: id}
	m.mu.Lock()
	defer m.mu.Unlock()
	k.adopt(bytes)
	return k
}

// Grow takes more bytes, as Keep does.
func (k *Kept) Grow(bytes int64, what string) error {
	if k == nil {
		return nil
	}
	m := k.of
	m.mu.Lock()
	defer m.mu.Unlock()
	if has := m.bound.has[k.tenant]; !m.bound.fits(k.tenant, bytes) {
		e := runtime.Errorf(runtime.CodeQuotaExceeded,
			"the server has no memory for %s of %d KiB: tenant %s has %d KiB, its share of the %d KiB that this server keeps for all tenants: end or delete something, send less, or give the server more memory", what, kib(k.bytes+bytes), k.tenant, kib(has), kib(m.bound.Limit))
		// The share itself depends on what others have.
		e.Exceeded = &runtime.Exceeded{Quota: "memory", Limit: has, Used: has}
		return e
	}
	k.adopt(bytes)
	return nil
}

// adopt takes more bytes even beyond the limit. The caller holds mu.
func (k *Kept) adopt(bytes int64) {
	k.bytes += bytes
	k.of.bound.AdoptN(k.tenant, bytes)
}

// Shrink frees some of the bytes.
func (k *Kept) Shrink(bytes int64) {
	if k == nil {
		return
	}
	m := k.of
	m.mu.Lock()
	defer m.mu.Unlock()
	bytes = min(bytes, k.bytes)
	k.bytes -= bytes
	m.bound.ReleaseN(k.tenant, bytes)
}

// Free frees all bytes. Freeing again does nothing.
func (k *Kept) Free() { k.Shrink(math.MaxInt64) }

// Reserve takes a quarter of the limit, at most most bytes, for a cache that evicts its contents
// itself. It returns how many.
func (m *Memory) Reserve(most int64) int64 {
	if m == nil {
		return most
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	most = min(most, m.bound.Limit/4)
	m.bound.Limit -= most
	return most
}

// Usage returns the bytes that all tenants keep, and the limit.
func (m *Memory) Usage() (used, limit int64) {
	if m == nil {
		return 0, 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bound.taken, m.bound.Limit
}

// kib returns bytes in KiB, rounded up.
func kib(bytes int64) int64 { return (bytes + 1<<10 - 1) >> 10 }

// BytesOf returns the memory of texts.
func BytesOf(texts ...string) (n int64) {
	for _, text := range texts {
		n += int64(len(text)) + 16
	}
	return n
}

// BytesOfLabels returns the memory of labels.
func BytesOfLabels(labels []runtime.Label) (n int64) {
	for _, l := range labels {
		n += BytesOf(l.Name, l.Value)
	}
	return n
}

// BytesOfVariables returns the memory of variables.
func BytesOfVariables(variables []runtime.Variable) (n int64) {
	for _, v := range variables {
		n += BytesOf(v.Name, v.Value)
	}
	return n
}

// A Bound limits how many things of one kind all tenants have together. A tenant gets one more
// while it has fewer than are left for all: one tenant alone gets half, a second one half of the
// rest, and so on. It always gets its first one, so tenants may have one each beyond the limit. A
// Bound isn't safe for concurrent use.
type Bound struct {
	Limit int64
	Free  int64  // what each tenant gets even beyond the limit; 0 means its first AcquireN
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
