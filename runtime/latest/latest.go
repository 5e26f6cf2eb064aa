// Package latest publishes a value that one goroutine sets. Others read it, and wait for
// a newer one, without that goroutine.
package latest

import "sync/atomic"

// A Value is set by one goroutine. Set it before anybody calls Get.
type Value[T comparable] struct{ version atomic.Pointer[version[T]] }

type version[T comparable] struct {
	value   T
	changed chan struct{} // closed when there is a newer one
}

// Get returns the newest value, and a channel that is closed once there is a newer one.
func (v *Value[T]) Get() (T, <-chan struct{}) {
	newest := v.version.Load()
	return newest.value, newest.changed
}

// Set is for one goroutine. An equal value is no newer one.
func (v *Value[T]) Set(value T) {
	old := v.version.Load()
	if old != nil && old.value == value {
		return
	}
	v.version.Store(&version[T]{value, make(chan struct{})})
	if old != nil {
		close(old.changed)
	}
}
