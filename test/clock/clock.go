// Package clock makes times as a wall clock gives them that was stepped. scripts/clock-tests runs whole tests under
// such a clock.
package clock

import (
	"time"
	"unsafe"
)

// Step returns t as read from a clock that was stepped by a number of seconds before: only its wall time differs.
// t must come from time.Now.
func Step(t time.Time, by time.Duration) time.Time {
	stepped := t
	// The first word of a time with a monotonic reading is 1 bit, 33 bits of seconds, 30 bits of nanoseconds.
	*(*uint64)(unsafe.Pointer(&stepped)) += uint64(by/time.Second) << 30
	if stepped.Sub(t) != 0 || stepped.Round(0).Sub(t.Round(0)) != by {
		panic("package time has changed its representation")
	}
	return stepped
}
