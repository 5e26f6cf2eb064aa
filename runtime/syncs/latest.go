package syncs

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// A Latest is a value that one goroutine sets. Others read it, and wait for a newer one, without blocking
// that goroutine. Only one goroutine may call Set, and it must do so before any Get.
type Latest[T comparable] struct{ version atomic.Pointer[version[T]] }

type version[T comparable] struct {
	value   T
	changed chan struct{} // closed when there is a newer version
}

// Get returns the latest value, and a channel that is closed once there is a newer one. It is safe
// for concurrent use.
func (v *Latest[T]) Get() (T, <-chan struct{}) {
	newest := v.version.Load()
	return newest.value, newest.changed
}

// Set publishes a value. Only one goroutine may call it. An equal value changes nothing.
func (v *Latest[T]) Set(value T) {
	old := v.version.Load()
	if old != nil && old.value == value {
		return
	}
	// The new version comes before the signal, so that woken readers find it.
	v.version.Store(&version[T]{value, make(chan struct{})})
	if old != nil {
		close(old.changed)
	}
}

// Closed reports whether c, to which nothing is sent, is closed. It doesn't block.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Offer sends a value unless that would block.
func Offer[T any](c chan<- T, value T) {
	select {
	case c <- value:
	default:
	}
}

// A Hint says that something has changed, so its one receiver reads the truth again. Hints that nobody has
// received yet are one. Its methods are safe for concurrent use.
type Hint chan struct{}

// NewHint returns a hint that wasn't sent.
func NewHint() Hint { return make(Hint, 1) }

// Send sends the hint. It doesn't block.
func (h Hint) Send() { Offer(h, struct{}{}) }

// Take receives the hint if it was sent, and reports whether it was.
func (h Hint) Take() bool {
	select {
	case <-h:
		return true
	default:
		return false
	}
}

// Watchers are the present watchers of something whose parts have ids. A hint to them means: read the state
// again. The zero value is ready. Its methods are safe for concurrent use.
type Watchers[ID comparable] struct {
	mu  sync.Mutex     // guards all
	all []*watcher[ID] // never changed in place
}

// A watcher is a pointer to a function, because functions can't be compared.
type watcher[ID comparable] struct{ hint func(ID) }

// Send hints to all watchers that the part id, or any part for the zero id, may have changed. It blocks only
// as long as the watchers' functions do.
func (w *Watchers[ID]) Send(id ID) {
	w.mu.Lock()
	all := w.all
	w.mu.Unlock()
	for _, one := range all {
		one.hint(id)
	}
}

// Watch calls hint at every Send, and first once for the zero id, because of earlier changes. It returns
// ctx's cause when ctx ends; hint may be called once more at that moment.
func (w *Watchers[ID]) Watch(ctx context.Context, hint func(ID)) error {
	mine := &watcher[ID]{hint}
	w.mu.Lock()
	w.all = append(slices.Clone(w.all), mine)
	w.mu.Unlock()
	var all ID
	hint(all)
	<-ctx.Done()
	w.mu.Lock()
	w.all = slices.DeleteFunc(slices.Clone(w.all), func(other *watcher[ID]) bool { return other == mine })
	w.mu.Unlock()
	return context.Cause(ctx)
}
