package syncs

import "sync/atomic"

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
