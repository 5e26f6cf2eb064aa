package fairqueue

import (
	"cmp"
	"context"
	"sync"

	"github.com/rockpool/rockpool/runtime"
)

// A Limiter limits concurrent work, for example starts of runners. The others wait in the order of a [Queue]:
// by priority, then in turns of their tenants, then in turns of a tenant's keys, then by age. Its
// methods are safe for concurrent use.
type Limiter struct {
	mu      sync.Mutex // guards the fields below, and those of its waiters
	limit   int
	free    int // negative while more are admitted than a lowered limit allows
	waiting Queue[string, *Waiter]
	came    uint64 // counts calls of Enter
	shared  bool
	has     map[runtime.TenantID]int // admitted waiters
}

// NewLimiter returns a limiter that admits limit waiters concurrently.
func NewLimiter(limit int) *Limiter {
	return &Limiter{limit: limit, free: limit, has: map[runtime.TenantID]int{}, waiting: Queue[string, *Waiter]{
		Compare: func(a, b *Waiter) int { return cmp.Compare(a.came, b.came) },
	}}
}

// NewSharedLimiter is like NewLimiter, for work that may last long. A tenant gets one more admission only
// while it has fewer than are free: one tenant alone gets half of them.
func NewSharedLimiter(limit int) *Limiter {
	l := NewLimiter(limit)
	l.shared = true
	return l
}

// SetLimit changes how many waiters the limiter admits concurrently. Admitted waiters stay admitted.
func (l *Limiter) SetLimit(limit int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free += limit - l.limit
	l.limit = limit
	l.next()
}

// Waiting returns how many waiters wait.
func (l *Limiter) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting.Len()
}

// A Waiter is one piece of work that may wait, also repeatedly. It has the work's present priority.
// All methods except Enter are safe for concurrent use.
type Waiter struct {
	limiter *Limiter
	tenant  runtime.TenantID
	key     string

	// Guarded by limiter.mu.
	priority runtime.Priority
	came     uint64
	admitted chan struct{} // closed when it is admitted; nil means that it doesn't wait
}

// Waiter returns a new waiter for a key of a tenant, for example an environment.
func (l *Limiter) Waiter(tenant runtime.TenantID, key string, priority runtime.Priority) *Waiter {
	return &Waiter{limiter: l, tenant: tenant, key: key, priority: priority}
}

// SetPriority changes the runner's priority, even while it waits.
func (w *Waiter) SetPriority(priority runtime.Priority) {
	w.limiter.mu.Lock()
	defer w.limiter.mu.Unlock()
	waits := w.limiter.waiting.Remove(w.tenant, w.key, w.priority, w)
	w.priority = priority
	if waits {
		w.limiter.waiting.Push(w.tenant, w.key, priority, w)
	}
}

// Enter waits until the work may begin. It returns a function to call afterwards, which admits
// the next one. It returns ctx's cause if ctx ends first.
func (w *Waiter) Enter(ctx context.Context) (leave func(), err error) {
	l := w.limiter
	l.mu.Lock()
	admitted := make(chan struct{})
	l.came++
	w.came, w.admitted = l.came, admitted
	l.waiting.Push(w.tenant, w.key, w.priority, w)
	l.next()
	l.mu.Unlock()
	select {
	case <-admitted:
		return w.leave, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.waiting.Remove(w.tenant, w.key, w.priority, w) { // it was admitted at the same moment
		w.end()
	}
	return nil, context.Cause(ctx)
}

// leave ends an admitted start, and admits the next one.
func (w *Waiter) leave() {
	w.limiter.mu.Lock()
	defer w.limiter.mu.Unlock()
	w.end()
}

// end is leave for a caller that holds limiter.mu.
func (w *Waiter) end() {
	l := w.limiter
	l.free++
	if l.has[w.tenant]--; l.has[w.tenant] == 0 {
		delete(l.has, w.tenant)
	}
	l.next()
}

// next admits waiters while there is room. The caller holds mu.
func (l *Limiter) next() {
	fits := func(w *Waiter) bool { return !l.shared || l.has[w.tenant] < l.free }
	for _, level := range l.waiting.Levels() {
		for l.free > 0 {
			w, ok := l.waiting.Take(level, fits)
			if !ok {
				break
			}
			l.free--
			l.has[w.tenant]++
			close(w.admitted)
		}
	}
}
